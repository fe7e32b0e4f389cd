# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from compiler_opt_perf.execution.json_text import JsonError, parse_json


def test_values() -> None:
    assert parse_json(b'{"a": [1, 2.5, null, "\xc3\xa4"]}') == {"a": [1, 2.5, None, "ä"]}
    # Both halves are a character.
    assert parse_json(r'"\ud83d\ude00"') == "\U0001f600"
    # An escaped backslash and what follows it are no escape.
    assert parse_json(r'"\\ud83d"') == r"\ud83d"


@pytest.mark.parametrize(
    ("data", "message", "place"),
    [
        (b'{"a": 1', "Expecting", ":1:8"),
        (b'{\n "a" 1}', "Expecting", ":2:6"),
        (b"", "Expecting value", ":1:1"),
        (b'"\xff"', "byte 1 is not UTF-8", ""),
        (b"[" * 200_000, "nested too deep", ""),
        (b'{"a":' * 200_000, "nested too deep", ""),
        (b"[1" + b"0" * 5000 + b"]", "too many digits", ""),
        (rb'{"a": "\ud800"}', "lone surrogate", ""),
        (rb'{"\uDfff": 1, "b": "\ud83d"}', "lone surrogate", ""),
    ],
)
def test_what_is_wrong_is_one_error(data: bytes, message: str, place: str) -> None:
    with pytest.raises(JsonError, match=message) as caught:
        parse_json(data)
    assert caught.value.place == place
