# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of a run behind those that were executed before them.

A model of blocks tells what one of many executions in a row takes, each of which waits for the one
before. In a run, a block waits for other ones. So windows of executed blocks are predicted, as if
one of them were executed many times in a row, and each block takes its share. Of a loop that the
window shows, that is one iteration, of which this is just so.
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

# Of a trace without windows, blocks of each.
_LENGTH = 9
# Of a window that shows no loop, so many of its last blocks: the longer code is, the less is known.
_MOST = 5
# Of the executions, in the most frequent windows; the rest is predicted as these are on average.
_COVERED = 0.995

#: What a piece of code is known by: bytes, and what is known of the instructions.
Key = tuple[bytes, bytes]
#: What tells executed blocks apart: name of the function, id, executions.
Place = tuple[str, int, int]
Floats = npt.NDArray[np.float64]
T = TypeVar("T")


def read_windows(path: Path) -> Windows:
    """The windows of a run, from a window histogram or a trace.

    Raises:
      TraceError: it is neither, or damaged.
    """
    written = path.stat() if path.exists() else None
    return _read(path, (written.st_mtime_ns, written.st_size) if written else None)


@functools.lru_cache(maxsize=2)
def _read(path: Path, written: tuple[int, int] | None) -> Windows:
    """The same for all candidates of a run; another file of that name was written otherwise."""
    if path.suffix == SUFFIX:
        return Windows.load(path)
    return Windows.count(Trace.load(path, quiet=True), _LENGTH)


def paired(wanted: Iterable[Place], found: Iterable[tuple[Place, T]]) -> list[T | None]:
    """What there is of each block that is wanted; None for none.

    Of blocks of local functions of one name that are alike in all that, each takes another one.
    """
    left: dict[Place, deque[T]] = {}
    for place, value in found:
        left.setdefault(place, deque()).append(value)
    return [left[place].popleft() if left.get(place) else None for place in wanted]


def numbered(windows: Windows, blocks: Iterable[tuple[Place, int]]) -> npt.NDArray[np.int64]:
    """Which of the candidate's blocks a block of the trace is, [B + 1]; -1 for none.

    Args:
      blocks: the candidate's, with their numbers.
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
    found[executed] = [-1 if one is None else one for one in paired(places, blocks)]
    return found


def _iteration(row: list[int]) -> list[int]:
    """One iteration of the loop that the blocks are of, if it is seen twice; else the last ones."""
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
    """What to multiply each block's cycles by for the company that it has in a run, [blocks].

    What windows take by what their blocks take alone, in the mean over the windows that end in the
    block; of blocks in rare windows and none else, as of the others. 1 if nothing is known at all.

    Args:
      numbers: as `numbered` returns it.
      keys: of the blocks, without jumps and calls.
      alone: [blocks] cycles of an execution of each by itself; NaN where there is no prediction.
      predict: cycles of code; what the model refuses may be missing.
    """
    enough = np.searchsorted(np.cumsum(windows.counts), _COVERED * windows.counts.sum()) + 1
    has_cycles = np.isfinite(alone)
    # By window: the block, how often, what the window takes if not in company, and its code.
    seen: list[tuple[int, int, float, Key | None]] = []
    for row, count in zip(
        numbers[windows.blocks[:enough]].tolist(), windows.counts[:enough].tolist(), strict=True
    ):
        # Blocks that the candidate lacks, or that the model refuses, are passed over.
        known = [number for number in _iteration(row) if number >= 0 and has_cycles[number]]
        by_itself = float(alone[known].sum())
        if not known or known[-1] != row[-1] or by_itself <= 0:
            continue
        key = b"".join(keys[one][0] for one in known), b"".join(keys[one][1] for one in known)
        # A loop of one block is what the model tells of it anyway.
        seen.append((row[-1], count, by_itself, key if len(known) > 1 else None))
    predicted = predict({key for *_, key in seen if key is not None})
    ratios, weights = np.zeros(len(keys)), np.zeros(len(keys))
    for number, count, by_itself, code in seen:
        cycles = by_itself if code is None else predicted.get(code)
        if cycles is not None:
            ratios[number] += count * cycles / by_itself
            weights[number] += count
    # Of a block in no window that was looked at, as much as of the others on average, by cycles.
    counted = weights > 0
    cycles_of = np.nan_to_num(alone)
    whole = weights @ cycles_of
    mean = ratios @ cycles_of / whole if whole > 0 else 1.0
    return np.divide(ratios, weights, out=np.full(len(keys), mean), where=counted)
