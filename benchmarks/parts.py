# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides a recorded run at the moments of a timed one (`timing.Stopwatch`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.blocks.run_parts import PartsError
from compiler_opt_perf.trace.edit import part
from compiler_opt_perf.trace.native import BranchPredictor
from compiler_opt_perf.trace.qemu import read_moments
from compiler_opt_perf.trace.trace_file import Trace


class Executed(NamedTuple):
    """What the parts of a recorded run executed: P parts, B blocks of the trace's table.

    Attributes:
      counts: [P, B] int64.
      elsewhere, mispredicted, taken: [P] int64, as in `run_parts.Part`.
    """

    counts: npt.NDArray[np.int64]
    elsewhere: npt.NDArray[np.int64]
    mispredicted: npt.NDArray[np.int64]
    taken: npt.NDArray[np.int64]


def executed(trace: Trace, moments: Path, boundaries: Sequence[int], total: int) -> Executed:
    """Divides a trace into parts.

    Args:
      moments: the file that was written while the trace was recorded (trace.qemu).
      boundaries: [P + 1] numbers of the moments between which the parts lie. Blocks before the
        first moment and after the last one belong to the first and the last part.
      total: moments of the timed run; 0 for any number.

    Raises:
      PartsError: the recorded run had other moments, or several threads.
      TraceError: the trace is damaged.
    """
    noted = read_moments(moments)
    if total and len(noted) != total:
        raise PartsError(
            f"{trace.path}: {len(noted)} moments while it was recorded, {total} when it was timed: "
            "what the program does depends on the time"
        )
    if len(trace.streams) != 1:
        raise PartsError(f"{trace.path}: {len(trace.streams)} threads; expected one")
    (stream,) = trace.streams.values()
    places = noted["blocks"][list(boundaries)].astype(np.int64)
    places[0], places[-1] = 0, len(stream)
    outside = noted["elsewhere"][list(boundaries)].astype(np.int64)
    parts, blocks = len(places) - 1, len(trace.table)
    counts = np.zeros((parts, blocks), np.int64)
    mispredicted, jumps = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    predictor = BranchPredictor(trace.table)
    before, last = 0, None
    for number in range(parts):
        for piece in part(trace, stream, int(places[number]), int(places[number + 1])):
            counts[number] += np.bincount(piece, minlength=blocks)
            predictor.add(piece, starts=last is None)
            joined = piece if last is None else np.concatenate([[last], piece])
            jumps[number] += int(trace.table.jumps(joined[:-1], joined[1:]).sum())
            last = piece[-1]
        now = int(predictor.result()[:, [1, 3]].sum())
        mispredicted[number], before = now - before, now
    return Executed(counts, np.diff(outside), mispredicted, jumps)
