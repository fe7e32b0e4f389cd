# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Corrects predicted cycles of blocks for the blocks that a run executes before them.

A cost model predicts the cycles of a block that is executed many times in a row, so each execution
waits for the one before. In a run, a block follows other blocks. So the model also predicts windows
of successive blocks, as if each window were executed many times in a row. A block's factor is its
windows' cycles over the sum of their blocks' cycles. If a window shows a loop, one iteration is
predicted, which is exact.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.windows import SUFFIX, Windows

# Window length for a trace without a window histogram, in blocks.
_LENGTH = 9
# The number of last blocks of a window without a loop; predictions of longer code are less exact.
_MOST = 5
# The share of executions in the predicted, most frequent windows; others get the mean factor.
_COVERED = 0.995

#: The key of code: its bytes, and the bytes of its instructions' PMU inputs.
Key = tuple[bytes, bytes]
#: The identity of an executed block: name of the function, block id, executions.
Place = tuple[str, int, int]
Floats = npt.NDArray[np.float64]
T = TypeVar("T")


def read_windows(path: Path) -> Windows:
    """Reads the windows of a run from a window histogram or a trace.

    Raises:
      TraceError: the file is neither, or damaged.
    """
    written = path.stat() if path.exists() else None
    return _read(path, (written.st_mtime_ns, written.st_size) if written else None)


@functools.lru_cache(maxsize=2)
def _read(path: Path, written: tuple[int, int] | None) -> Windows:
    """Reads once for all candidates of a run; `written` detects a replaced file."""
    if path.suffix == SUFFIX:
        return Windows.load(path)
    return Windows.count(Trace.load(path, quiet=True), _LENGTH)


def paired(wanted: Iterable[Place], found: Iterable[tuple[Place, T]]) -> list[T | None]:
    """The value found for each wanted block; None if there is none.

    Blocks of local functions may have equal identities; each found value is used once.
    """
    left: dict[Place, deque[T]] = {}
    for place, value in found:
        left.setdefault(place, deque()).append(value)
    return [left[place].popleft() if left.get(place) else None for place in wanted]


def numbered(windows: Windows, blocks: Iterable[tuple[Place, int]]) -> npt.NDArray[np.int64]:
    """Maps the trace's blocks to the candidate's, int64 [B + 1]; -1 for none.

    Args:
      windows: the window histogram of the trace, with B blocks.
      blocks: the candidate's executed blocks with their numbers.
    """
    table = windows.table
    last = windows.blocks[:, -1]
    counts = np.bincount(last, windows.counts.astype(np.float64), len(table) + 1)
    executed = np.flatnonzero(counts[:-1])
    places = [
        (table.names[table.function[number]], int(table.block_id[number]), int(counts[number]))
        for number in executed.tolist()
    ]
    found = np.full(len(table) + 1, -1, np.int64)
    found[executed] = [-1 if number is None else number for number in paired(places, blocks)]
    return found


def _iteration(row: list[int]) -> list[int]:
    """One iteration of a loop that the window shows at least twice; else the last blocks."""
    for period in range(1, len(row) // 2 + 1):
        if row[period:] == row[:-period]:
            return row[-period:]
    return row[-_MOST:]


def shares(
    windows: Windows,
    numbers: npt.NDArray[np.int64],
    keys: Sequence[Key],
    alone: Floats,
    predict: Callable[[set[Key]], Mapping[Key, float]],
) -> Floats:
    """The factor of each block's cycles for its predecessors in a run, [blocks].

    A window's factor is its cycles over the sum of its blocks' cycles alone. A block's factor is
    the mean over the windows that end in the block. Blocks in rare windows only get the mean factor
    of the others, weighted by cycles; 1 without any.

    Args:
      windows: the window histogram of the run.
      numbers: the result of `numbered`.
      keys: [blocks], keys of the blocks without jumps and calls.
      alone: [blocks], cycles of an execution of each block alone; NaN without a prediction.
      predict: predicts the cycles of code; the result may lack code that the model refuses.
    """
    enough = np.searchsorted(np.cumsum(windows.counts), _COVERED * windows.counts.sum()) + 1
    has_cycles = np.isfinite(alone)
    # For each window: its last block, its count, its blocks' cycles alone, and its key.
    seen: list[tuple[int, int, float, Key | None]] = []
    for row, count in zip(
        numbers[windows.blocks[:enough]].tolist(), windows.counts[:enough].tolist(), strict=True
    ):
        # Blocks that the candidate lacks, or that the model refuses, are skipped.
        known = [number for number in _iteration(row) if number >= 0 and has_cycles[number]]
        by_itself = float(alone[known].sum())
        if not known or known[-1] != row[-1] or by_itself <= 0:
            continue
        key = (
            b"".join(keys[block][0] for block in known),
            b"".join(keys[block][1] for block in known),
        )
        # A loop of one block is what the model predicts for the block alone.
        seen.append((row[-1], count, by_itself, key if len(known) > 1 else None))
    predicted = predict({key for *_, key in seen if key is not None})
    ratios, weights = np.zeros(len(keys)), np.zeros(len(keys))
    for number, count, by_itself, code in seen:
        cycles = by_itself if code is None else predicted.get(code)
        if cycles is not None:
            ratios[number] += count * cycles / by_itself
            weights[number] += count
    # Blocks in no predicted window get the mean factor, weighted by cycles.
    counted = weights > 0
    cycles_of = np.nan_to_num(alone)
    whole = weights @ cycles_of
    mean = ratios @ cycles_of / whole if whole > 0 else 1.0
    return np.divide(ratios, weights, out=np.full(len(keys), mean), where=counted)
