# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from compiler_opt_perf.run.json_text import (
    Count,
    FieldError,
    Finite,
    JsonError,
    Measure,
    decode,
    parse_json,
)


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


class _Event(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["sum", "max"]
    total: Count = 0
    located: Count = 0
    share: Finite = 0.0
    more: "_Event | None" = None

    def __post_init__(self) -> None:
        if self.located > self.total:
            raise FieldError("located", f"expected at most {self.total}, got {self.located}")


@dataclass(frozen=True)
class _File:
    events: tuple[_Event, ...]
    places: Mapping[str, tuple[str, int]]
    tables: Mapping[str, Mapping[str, Measure]] = field(default_factory=dict)


FORM = ("a-format", 1)
SOUND: dict[str, Any] = {
    "format": "a-format",
    "version": 1,
    "events": [{"name": "a", "kind": "sum"}, {"name": "b", "kind": "max", "total": 7}],
    "places": {"f": ["f.c", 1], 'g["x]\n': ["g.c", 2]},
    "unknown": [None],
}


def test_files_are_decoded_as_their_type() -> None:
    events = (_Event("a", "sum"), _Event("b", "max", 7))
    expected = _File(events, {"f": ("f.c", 1), 'g["x]\n': ("g.c", 2)})
    text = json.dumps(SOUND)
    assert decode(text, _File, "a.json", FORM) == expected
    assert decode(text.encode(), _File, Path("a.json")) == expected
    # Integers are floats, too; nothing else is converted, and what is not known may be odd.
    odd = SOUND | {"events": [SOUND["events"][0] | {"share": 2}], "unknown": [math.nan, 10**400]}
    (event,) = decode(json.dumps(odd), _File, "a.json").events
    assert event.share == 2.0 and type(event.share) is float


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "b-format"}, '$.format: expected "a-format", found "b-format": this is anoth'),
        ({"version": 2}, "$.version: expected 1, found 2: another version of this program wrote"),
        # Looked at before all others, wherever they stand.
        ({"events": 3, "version": 2}, "$.version: expected 1, found 2"),
        ({"version": True}, "$.version: expected 1, found true"),
        ({"version": 1.0}, "$.version: expected 1, found 1.0"),
        ({"version": ...}, "$.version: is missing"),
        ({"events": {}}, "$.events: expected `array`, found {}"),
        ({"events": [[]]}, "$.events[0]: expected `object`, found []"),
        ({"events": [{"kind": "sum"}]}, "$.events[0].name: is missing"),
        ({"events": ...}, "$.events: is missing"),
        ({"name": 5}, "$.events[1].name: expected `str`, found 5"),
        ({"name": "x" * 50, "kind": 1}, "$.events[1].kind: expected `str`, found 1"),
        ({"kind": "mean"}, "$.events[1].kind: invalid enum value 'mean', found \"mean\""),
        ({"total": -1}, "$.events[1].total: expected `int` >= 0, found -1"),
        ({"total": True}, "$.events[1].total: expected `int`, found true"),
        ({"total": 1.0}, "$.events[1].total: expected `int`, found 1.0"),
        ({"total": "1"}, '$.events[1].total: expected `int`, found "1"'),
        ({"total": 2**63}, f"$.events[1].total: expected `int` <= {2**63 - 1}, found {2**63}"),
        ({"total": 10**400}, f"expected `int` <= {2**63 - 1}, found 1{39 * '0'}..."),
        ({"located": 8}, "$.events[1].located: expected at most 7, got 8"),
        ({"more": {"name": "c"}}, "$.events[1].more.kind: is missing"),
        ({"share": math.nan}, "$.events[1].share: expected `float` >= -1.79"),
        ({"share": -math.inf}, "$.events[1].share: expected `float` >= -1.79"),
        ({"share": math.inf}, "$.events[1].share: expected `float` <= 1.79"),
        ({"share": 10**400}, "$.events[1].share: number out of range, found 1000"),
        ({"places": {"f": ["f.c", 1], "g": [1, 1]}}, '$.places["g"][0]: expected `str`, found 1'),
        ({"places": {'g["x]\n': []}}, r'$.places["g[\"x]\n"]: expected `array` of length 2, found'),
        ({"tables": {"a": {"b": 1}, "c": {"d": 1, "e": 2**64}}}, '$.tables["c"]["e"]: expected'),
        ({"tables": {"a": 1}}, '$.tables["a"]: expected `object`, found 1'),
    ],
)
def test_errors_name_file_place_and_what_was_expected(change: dict[str, Any], message: str) -> None:
    value = copy.deepcopy(SOUND)
    for name, new in change.items():
        whole = name in ("format", "version", "events", "places", "tables")
        inside = value if whole else value["events"][1]
        inside[name] = new
        if new is ...:
            del inside[name]
    with pytest.raises(JsonError) as caught:
        decode(json.dumps(value), _File, "a.json", FORM)
    assert str(caught.value).startswith("a.json: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1', "a.json:1:8: not JSON: Expecting ',' delimiter (truncated?)"),
        (b"\xff", "a.json: not JSON: byte 0 is not UTF-8"),
        (b"[" * 200_000, "a.json: not JSON: nested too deep"),
        (b"[1]", "a.json: $: expected `object`, found [1]"),
    ],
)
@pytest.mark.parametrize("form", [FORM, None])
def test_errors_of_texts_name_the_file(
    data: bytes, message: str, form: tuple[str, int] | None
) -> None:
    with pytest.raises(JsonError) as caught:
        decode(data, _File, "a.json", form)
    assert str(caught.value) == message
