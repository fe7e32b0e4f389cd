# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a run: a recorded run divided at the moments of a timed one (`timing.Stopwatch`).

Single blocks can be measured, but not in the company that they have in a run. A sum over the blocks
of a part can be compared with the time of the part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.common import BenchmarkError
from benchmarks.timing import Floats
from compiler_opt_perf.trace.native import BranchPredictor
from compiler_opt_perf.trace.qemu import read_sync_points
from compiler_opt_perf.trace.trace_file import Trace


class PartsError(BenchmarkError):
    """A run that has no parts, because its moments depend on the time."""


@dataclass(frozen=True)
class RunParts:
    """P parts of a run, and the B blocks that it executed.

    Attributes:
      blocks: [B] function, and the compiler's number of the block in it.
      codes: [B] bytes of the blocks, each with the jump, call or return that ends it.
      l1_misses, l3_misses: [B] loads of an execution that miss, by a profile of the run; 0 where
        nothing is known.
      executions: [P, B].
      seconds: [P] processor time with the kernel's, the least of all rounds.
      faults: [P] pages that the kernel gave the program.
      elsewhere: [P] instructions executed outside of the binary.
      mispredicted: [P] branches that a simulated predictor did not foresee.
      taken: [P] how often a block was followed by one that does not stand behind it.
    """

    blocks: list[tuple[str, int]]
    codes: list[bytes]
    l1_misses: Floats
    l3_misses: Floats
    executions: Floats
    seconds: Floats
    faults: Floats
    elsewhere: Floats
    mispredicted: Floats
    taken: Floats


class Executed(NamedTuple):
    """What the parts of a recorded run executed: P parts, B blocks of the trace's table.

    Attributes:
      counts: [P, B] int64.
      elsewhere, mispredicted, taken: [P] int64, as in `RunParts`.
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
    noted = read_sync_points(moments)
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
    position, before, last = 0, 0, None
    for number in range(parts):
        for piece in trace.part(stream, int(places[number]), int(places[number + 1])):
            counts[number] += np.bincount(piece, minlength=blocks)
            predictor.add(piece, position, starts=last is None)
            position += len(piece)
            joined = piece if last is None else np.concatenate([[last], piece])
            jumps[number] += int(trace.table.jumps(joined[:-1], joined[1:]).sum())
            last = piece[-1]
        now = int(predictor.result()[:, [1, 3]].sum())
        mispredicted[number], before = now - before, now
    return Executed(counts, np.diff(outside), mispredicted, jumps)
