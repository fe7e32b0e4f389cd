# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from compiler_opt_perf.run.curve import EVENTS, curve_text, curve_values, write_curve
from compiler_opt_perf.run.files import FileWriteError

POINTS: list[dict[str, Any]] = [
    {"generation": 0, "validation_of_mean": 0.01, "elapsed_s": 1.5},
    {"generation": 1, "candidates_mean": -0.5, "candidates_failed": 2, "elapsed_s": 3.0},
    {"generation": 2, "candidates_mean": None, "validation_of_mean": 0.25, "elapsed_s": 4.0},
]


def _shown(folder: Path) -> list[tuple[int, float, dict[str, float]]]:
    """What TensorBoard reads."""
    events = list(EventFileLoader(str(folder / EVENTS)).Load())
    assert events[0].file_version == "brain.Event:2"
    # Its loader turns the values into tensors, as it does those of older writers.
    return [
        (e.step, e.wall_time, {v.tag: v.tensor.float_val[0] for v in e.summary.value})
        for e in events[1:]
    ]


def test_tensorboard_reads_the_curve(tmp_path: Path) -> None:
    write_curve(tmp_path / "curve.jsonl", POINTS)
    assert (tmp_path / "curve.jsonl").read_text() == curve_text(POINTS)
    assert _shown(tmp_path) == [
        (0, 1.5, {"validation_of_mean": pytest.approx(0.01)}),
        (1, 3.0, {"candidates_mean": -0.5, "candidates_failed": 2.0}),
        (2, 4.0, {"validation_of_mean": 0.25}),
    ]


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
    assert [step for step, _, _ in _shown(tmp_path)] == [0, 1]
    write_curve(path, [*POINTS[:1], {**POINTS[1], "candidates_mean": 7.0}])
    assert _shown(tmp_path)[1][2]["candidates_mean"] == 7.0


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
