# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the curve of a training, one point a step, as JSON lines and for TensorBoard.

Both files are written anew from all points, so that an interruption changes nothing in them.
"""

import contextlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt_perf.run.files import atomic_write, read_input, write_text

#: TensorBoard looks for files of such a name.
EVENTS = "events.out.tfevents.0"
# The fields of a point's step and time.
_STEP = "generation"
_SECONDS = "elapsed_s"


def curve_values(point: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a point, without its step and time; counts are int."""
    return {
        name: value
        for name, value in point.items()
        if name not in (_STEP, _SECONDS)
        and type(value) in (int, float)
        # Excludes NaN, and integers that are too large for a float.
        and abs(value) < 2.0**64
    }


def write_curve(path: Path, points: Sequence[Mapping[str, Any]]) -> None:
    """Writes `path` as JSON lines, and a file for TensorBoard beside it. Raises FileWriteError."""
    rows = [(n, float(p.get(_SECONDS, 0.0)), curve_values(p)) for n, p in enumerate(points)]
    write_scalars(path.parent, rows)
    # Written last: if this file is complete, the other one is, too.
    write_text(path, curve_text(points))


def curve_text(points: Sequence[Mapping[str, Any]]) -> str:
    """The points as JSON lines."""
    return "".join(json.dumps(point) + "\n" for point in points)


def write_scalars(folder: Path, rows: Sequence[tuple[int, float, Mapping[str, float]]]) -> None:
    """Writes the event file in `folder`, which `tensorboard --logdir` shows.

    Rows that continue the file are appended to it. A running TensorBoard then shows each row once.

    Args:
      rows: step, seconds since the training began, and values by name.

    Raises:
      FileWriteError: the disk is full.
    """
    path, content = folder / EVENTS, _events(rows)
    before = b""
    with contextlib.suppress(OSError):
        before = read_input(path)
    if before == content:
        return
    if before and content.startswith(before):
        with contextlib.suppress(OSError), path.open("ab") as stream:
            stream.write(content[len(before) :])
            return
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _events(rows: Sequence[tuple[int, float, Mapping[str, float]]]) -> bytes:
    # Imported here, since it takes long. It does not load TensorFlow.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    stream = io.BytesIO()
    writer = RecordWriter(stream)
    writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
    for step, seconds, values in rows:
        scalars = [Summary.Value(tag=name, simple_value=one) for name, one in values.items()]
        event = Event(wall_time=seconds, step=step, summary=Summary(value=scalars))
        writer.write(event.SerializeToString(deterministic=True))
    return stream.getvalue()
