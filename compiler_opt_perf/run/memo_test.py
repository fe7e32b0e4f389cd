# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
import pytest

from compiler_opt_perf.run.files import FileWriteError
from compiler_opt_perf.run.memo import memo, note, numbered, recall, stamped

INPUTS: dict[str, Any] = {"flags": ("-O2", "-g"), "rounds": 3, "share": 0.1}


class _Measured(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    seconds: dict[str, float]


MEASURED = _Measured(("a", "b"), {"a": 0.1, "b": 1 / 3})


def counted(result: Any) -> tuple[list[int], Callable[[], Any]]:
    """A step, and its calls so far."""
    calls: list[int] = []

    def make() -> Any:
        calls.append(1)
        return result

    return calls, make


def test_a_result_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "measured.json"
    calls, make = counted(MEASURED)
    for _ in range(3):
        assert memo(path, INPUTS, _Measured, make) == MEASURED
    assert len(calls) == 1
    assert json.loads(path.read_text())["inputs"] == {**INPUTS, "flags": ["-O2", "-g"]}
    # Also one that says no more than that the step is done.
    calls, make = counted(None)
    for _ in range(3):
        memo(tmp_path / "done.json", INPUTS, NoneType, make)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "change", [{"flags": ("-O2",)}, {"rounds": 4}, {"share": 0.1000001}, {"more": None}]
)
def test_of_other_inputs_it_is_made_again(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "measured.json"
    memo(path, INPUTS, int, lambda: 1)
    assert memo(path, INPUTS | change, int, lambda: 2) == 2
    assert memo(path, INPUTS | change, int, lambda: 3) == 2
    # It has the place of the first one.
    assert memo(path, INPUTS, int, lambda: 4) == 4


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("inputs", [INPUTS, {}])
def test_what_was_interrupted_is_made_again(
    tmp_path: Path, stop: type[BaseException], inputs: Any
) -> None:
    path, written = tmp_path / "measured.json", tmp_path / "trace"

    def make() -> int:
        written.write_text("whole")
        return 1

    def interrupted() -> int:
        written.write_text("half")
        raise stop

    assert memo(path, INPUTS, int, make, [written]) == 1
    written.unlink()
    with pytest.raises(stop):
        memo(path, inputs, int, interrupted, [written])
    # The files are all there, and yet the old note is not believed.
    assert memo(path, INPUTS, int, make, [written]) == 1
    assert written.read_text() == "whole"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:20], "measured.json:1:21: not JSON"),
        (lambda text: "", "measured.json:1:1: not JSON"),
        (lambda text: "[]", r"measured.json: \$: expected `object`"),
        (lambda text: '{"options": ["-O2"]}', r"measured.json: \$.inputs: is missing"),
        (
            lambda text: text.replace('"a": 0.1', '"a": "x"'),
            r'measured.json, result: \$.seconds\["a"\]: expected `float`, found "x"',
        ),
    ],
)
def test_a_damaged_note_is_told_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[str], str], message: str
) -> None:
    path = tmp_path / "measured.json"
    memo(path, INPUTS, _Measured, lambda: MEASURED)
    whole = path.read_text()
    path.write_text(damage(whole))
    calls, make = counted(MEASURED)
    assert memo(path, INPUTS, _Measured, make) == MEASURED
    assert len(calls) == 1
    (record,) = caplog.records
    assert re.search(rf"{tmp_path}/{message}.*; done again$", record.message)
    assert record.levelname == "WARNING"
    caplog.clear()
    assert path.read_text() == whole
    assert memo(path, INPUTS, _Measured, make) == MEASURED
    assert not caplog.records


def test_a_missing_file_is_made_again(tmp_path: Path) -> None:
    path, binary = tmp_path / "built.json", tmp_path / "binary"
    calls, make = counted("built")
    binary.touch()
    memo(path, INPUTS, str, make, [binary])
    memo(path, INPUTS, str, make, [binary])
    assert len(calls) == 1
    binary.unlink()
    memo(path, INPUTS, str, make, [binary])
    assert len(calls) == 2


def test_a_stamped_step_is_done_once_for_a_key(tmp_path: Path) -> None:
    path, binary = tmp_path / "binary.digest", tmp_path / "binary"
    done: list[str] = []

    def build(key: str, stop: type[BaseException] | None = None) -> int:
        def make() -> None:
            done.append(key)
            binary.write_text(key)
            if stop:
                raise stop

        stamped(path, key, make, [binary])
        return len(done)

    assert [build("a"), build("a"), build("b"), build("b"), build("a")] == [1, 1, 2, 2, 3]
    assert path.read_text() == "a"
    binary.unlink()
    assert [build("a"), build("a")] == [4, 4]
    path.write_bytes(b"\xff")
    assert [build("a"), build("a")] == [5, 5]
    # What it wrote when it was stopped is not taken for the whole, nor for what was there before.
    with pytest.raises(KeyboardInterrupt):
        build("b", KeyboardInterrupt)
    assert [build("a"), build("a")] == [7, 7]


def test_a_result_that_grows_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rounds.json"
    assert recall(path, INPUTS, list[int]) is None
    for number in range(3):
        rounds = recall(path, INPUTS, list[int]) or []
        assert note(path, INPUTS, list[int], [*rounds, number]) == list(range(number + 1))
    assert recall(path, {}, list[int]) is None


def test_results_are_the_same_whether_read_or_made(tmp_path: Path) -> None:
    for _ in range(2):
        found = memo(tmp_path / "pair.json", 1, tuple[float, ...], lambda: (1, 2.5))
        assert repr(found) == "(1.0, 2.5)"


def test_notes_of_many_inputs_have_a_path_each(tmp_path: Path) -> None:
    paths = {numbered(tmp_path, {"binary": binary, "entry": ""}) for binary in ("a", "b", "a")}
    assert len(paths) == 2


def test_a_note_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileWriteError, match=r"file/measured\.json"):
        note(tmp_path / "file" / "measured.json", INPUTS, int, 1)
