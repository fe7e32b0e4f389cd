# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import base64
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.run.curve import EVENTS, curve_text, curve_values, write_curve
from compiler_opt_perf.run.files import FileWriteError

POINTS: list[dict[str, Any]] = [
    {"generation": 0, "validation_of_mean": 0.01, "elapsed_s": 1.5},
    {"generation": 1, "candidates_mean": -0.5, "candidates_failed": 2, "elapsed_s": 3.0},
    {"generation": 2, "candidates_mean": None, "validation_of_mean": 0.25, "elapsed_s": 4.0},
]


# What TensorBoard 2.19 itself writes for these points.
WRITTEN_BY_TENSORBOARD = base64.b64decode(
    "DwAAAAAAAABtUysJGg1icmFpbi5FdmVudDoy/JhRKSYAAAAAAAAAc0/jAAkAAAAAAAD4PyobChkKEnZhbGlkYXRpb25f"
    "b2ZfbWVhbhUK1yM8X83Zyz8AAAAAAAAAUWV2YQkAAAAAAAAIQBABKjIKFgoPY2FuZGlkYXRlc19tZWFuFQAAAL8KGAoR"
    "Y2FuZGlkYXRlc19mYWlsZWQVAAAAQPR+X0coAAAAAAAAAP9wFkoJAAAAAAAAEEAQAiobChkKEnZhbGlkYXRpb25fb2Zf"
    "bWVhbhUAAIA+f0rDpA=="
)


def test_the_curve_is_written_as_tensorboard_writes_it(tmp_path: Path) -> None:
    write_curve(tmp_path / "curve.jsonl", POINTS)
    assert (tmp_path / "curve.jsonl").read_text() == curve_text(POINTS)
    assert (tmp_path / EVENTS).read_bytes() == WRITTEN_BY_TENSORBOARD


def _events(points: list[dict[str, Any]], folder: Path) -> bytes:
    """The event file of a new training with these points."""
    write_curve(folder / "curve.jsonl", points)
    return (folder / EVENTS).read_bytes()


def test_no_step_is_there_twice_after_an_interruption(tmp_path: Path) -> None:
    path, events = tmp_path / "curve.jsonl", tmp_path / EVENTS
    write_curve(path, POINTS)
    whole = events.read_bytes()
    # Cut anywhere, as by a signal while it was written, it is continued in place ...
    events.unlink()
    write_curve(path, POINTS[:1])
    for cut in (len(events.read_bytes()), len(whole) - 5, 0):
        events.write_bytes(whole[:cut])
        write_curve(path, POINTS)
        assert events.read_bytes() == whole
    # (a TensorBoard that has it open sees the rest)
    inode = events.stat().st_ino
    events.write_bytes(whole[:-5])
    write_curve(path, POINTS)
    assert (events.stat().st_ino, events.read_bytes()) == (inode, whole)
    # ... and what went on after the last checkpoint does not stay.
    write_curve(path, POINTS[:2])
    assert events.read_bytes() == _events(POINTS[:2], tmp_path / "two")
    changed = [*POINTS[:1], {**POINTS[1], "candidates_mean": 7.0}]
    write_curve(path, changed)
    assert events.read_bytes() == _events(changed, tmp_path / "changed")


def test_what_is_no_number_is_left_out() -> None:
    point = {"generation": 3, "a": float("nan"), "b": True, "c": "x", "d": 2, "e": -0.5}
    assert curve_values(point) == {"d": 2, "e": -0.5}
    # What JSON can say and no float can be.
    for huge in (10**400, -(10**400), 2**64, 1e300, float("inf"), float("nan")):
        assert curve_values({"a": huge, "d": 2}) == {"d": 2}


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileWriteError, match="file"):
        write_curve(tmp_path / "file" / "curve.jsonl", POINTS)
