# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Window histograms: the distinct runs of k consecutive blocks of a trace, with counts.

An evaluator that simulates a block after the k - 1 blocks before it needs no more of a trace than
this: the work grows with the distinct windows, not with the length of the run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.files import atomic_write
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.trace import native
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.edit import part
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import (
    BRANCHES,
    WINDOWS,
    Record,
    Trace,
    write_blocks,
    write_end,
    write_record,
    write_start,
)

SUFFIX = ".bbwindows"
FORMAT = "compiler-opt-perf/block-windows"
LONGEST = 64
# Bytes of a number of 64 bits.
_LONGEST_CODE = 10
_WINDOWS_IN_RECORD = 1 << 14
#: Parts of the run that are kept as they are, and blocks in each.
SAMPLES = 150
SAMPLE_BLOCKS = 600
#: The branches of so many blocks at most are predicted, in stretches of whole records.
PREDICTED_BLOCKS = 200_000_000


class _Fields(msgspec.Struct, frozen=True):
    """What the description has besides a trace's."""

    window: Annotated[int, msgspec.Meta(ge=1, le=LONGEST)]


@dataclass(frozen=True)
class Windows:
    """Distinct windows of a trace.

    Attributes:
      table: the blocks; its length B stands where fewer blocks precede.
      blocks: [N, k] uint32, each window's blocks, oldest first.
      counts: [N] uint64, how often each occurred; they fall.
      branches: [B, 4] uint64, what a simulated predictor made of the blocks' branches: exits,
        mispredicted ones, calls, mispredicted ones; None if not asked for or not to be told.
    """

    table: BlockTable
    blocks: Numbers
    counts: npt.NDArray[np.uint64]
    branches: npt.NDArray[np.uint64] | None = None

    @classmethod
    def count(cls, trace: Trace, length: int, *, predict: bool = False) -> Self:
        """Counts the windows of `length` blocks.

        Args:
          predict: simulate a predictor of branches, unless the trace has gaps or was drawn.

        Raises:
          TraceError: the trace is damaged, or the length is not from 1 to LONGEST.
        """
        if not 1 <= length <= LONGEST:
            raise TraceError(f"windows of {length} blocks; expected 1 to {LONGEST}")
        counter = native.WindowCounter(length, len(trace.table))
        # A path with gaps, or one that was drawn, has not the history that predictors learn from.
        predict = predict and not trace.description.fragments
        predictor = native.BranchPredictor(trace.table) if predict else None
        total = trace.total
        share = min(1.0, PREDICTED_BLOCKS / max(1, total))
        seen = predicted = 0
        with Progress("blocks in windows", total) as progress:
            for stream in trace.streams.values():
                starts = True
                for numbers in trace.pieces(stream):
                    counter.add(numbers, starts)
                    seen += len(numbers)
                    if predictor and predicted < share * seen:
                        # After what was left out, the next block follows nothing.
                        predictor.add(numbers, starts=starts or share < 1)
                        predicted += len(numbers)
                    starts = False
                    progress.advance(len(numbers))
        return cls(trace.table, *counter.result(), predictor.result() if predictor else None)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a window histogram. Raises TraceError when it is none, or damaged."""
        file = Trace.load(path, format_=FORMAT)
        length = file.read_description(_Fields).window
        windows, counts, branches = [], [], None
        for record in file.records:
            if record.kind == WINDOWS:
                codes = _codes(file, record)
                if len(codes) != record.count * (length + 1):
                    raise TraceError(f"{path}: byte {record.offset}: malformed: make it anew")
                rows = codes.reshape(record.count, length + 1)
                counts.append(rows[:, 0])
                deltas = (rows[:, 1:] >> np.uint64(1)).astype(np.int64)
                deltas ^= -(rows[:, 1:] & np.uint64(1)).astype(np.int64)
                numbers = np.cumsum(deltas, axis=1)
                if np.any((numbers < 0) | (numbers > len(file.table))):
                    raise TraceError(
                        f"{path}: byte {record.offset}: a block number is larger than the block "
                        "table; make it anew"
                    )
                windows.append(numbers.astype(np.uint32))
            elif record.kind == BRANCHES:
                codes = _codes(file, record)
                if len(codes) != 5 * record.count:
                    raise TraceError(f"{path}: byte {record.offset}: malformed: make it anew")
                rows = codes.reshape(record.count, 5)
                branches = np.zeros((len(file.table), 4), np.uint64)
                places = np.cumsum(rows[:, 0])
                # The sum itself may wrap around.
                if np.any(places >= len(branches)) or np.any(rows[:, 0] > len(branches)):
                    raise TraceError(
                        f"{path}: byte {record.offset}: a block number is larger than the block "
                        "table; make it anew"
                    )
                branches[places.astype(np.int64)] = rows[:, 1:]
        if not windows:
            return cls(file.table, np.empty((0, length), np.uint32), np.empty(0, np.uint64))
        return cls(file.table, np.concatenate(windows), np.concatenate(counts), branches)


def write_windows(trace: Trace, length: int, output: Path) -> Windows:
    """Writes the histogram of a trace, and samples of it, to `output`, NAME.bbwindows.

    Raises:
      TraceError: as Windows.count, or the name is another.
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    if output.suffix != SUFFIX:
        raise TraceError(f"{output}: the name of a window histogram must end with {SUFFIX}")
    found = Windows.count(trace, length, predict=True)
    more = {"window": length, "total": int(found.counts.sum())}
    with atomic_write(output) as temporary:
        with temporary.open("wb") as stream:
            write_start(stream, trace.description, trace.table, FORMAT, more)
            for start in range(0, len(found.counts), _WINDOWS_IN_RECORD):
                rows = slice(start, start + _WINDOWS_IN_RECORD)
                raw = _encode(found.blocks[rows], found.counts[rows])
                write_record(stream, WINDOWS, raw, count=len(found.counts[rows]))
            if found.branches is not None:
                executed = np.flatnonzero(found.branches.any(axis=1))
                deltas = np.diff(executed, prepend=0)[:, np.newaxis]
                rows_of_branches = np.hstack([deltas, found.branches[executed].astype(np.int64)])
                raw = to_leb128(rows_of_branches.ravel().tolist())
                write_record(stream, BRANCHES, raw, count=len(executed))
            for number, numbers in enumerate(samples(trace)):
                write_blocks(stream, [numbers], number=number, ends=True)
        write_end(temporary)
    return found


def samples(trace: Trace) -> Iterator[Numbers]:
    """Parts of a run, evenly spread over its blocks; all of it when it is short.

    Each has SAMPLE_BLOCKS blocks, or fewer at the end of a stream. Raises TraceError.
    """
    step = max(SAMPLE_BLOCKS, trace.total // SAMPLES)
    before = 0
    for stream in trace.streams.values():
        # The places are multiples of the step in the whole of the run, less half a step.
        first = (step // 2 - before) % step if step > SAMPLE_BLOCKS else 0
        for begin in range(first, len(stream), step):
            end = min(begin + SAMPLE_BLOCKS, len(stream))
            yield np.concatenate(list(part(trace, stream, begin, end)))
        before += len(stream)


def _encode(blocks: Numbers, counts: npt.NDArray[np.uint64]) -> bytes:
    """Each window as its count and differences, in LEB128."""
    deltas = np.diff(blocks.astype(np.int64), axis=1, prepend=0)
    codes = (deltas << 1) ^ (deltas >> 63)
    return to_leb128(np.hstack([counts.astype(np.int64)[:, np.newaxis], codes]).ravel().tolist())


def to_leb128(values: Iterable[int]) -> bytes:
    """Unsigned LEB128 of each value, one after the other."""
    raw = bytearray()
    for value in values:
        while value >= 0x80:
            raw.append(value & 0x7F | 0x80)
            value >>= 7
        raw.append(value)
    return bytes(raw)


def _codes(file: Trace, record: Record) -> npt.NDArray[np.uint64]:
    """The numbers of a record. Raises TraceError."""
    try:
        return _leb128(file.content(record))
    except TraceError as error:
        if str(error).startswith(str(file.path)):
            raise
        raise TraceError(
            f"{file.path}: byte {record.offset}: malformed: {error}; make it anew"
        ) from error


def _leb128(raw: bytes) -> npt.NDArray[np.uint64]:
    """All numbers that `raw` holds. Raises TraceError: one is larger than any count."""
    data = np.frombuffer(raw, np.uint8)
    last = np.flatnonzero(data < 0x80)
    first = np.concatenate(([0], last[:-1] + 1)) if len(last) else last
    values = np.zeros(len(last), np.uint64)
    for place in range(int(np.max(last - first, initial=-1)) + 1):
        there = first + place <= last
        if place == _LONGEST_CODE:
            raise TraceError("a number of more than 64 bits")
        part = data[(first + place)[there]].astype(np.uint64) & np.uint64(0x7F)
        values[there] |= part << np.uint64(7 * place)
    return values
