# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Window histograms: the distinct windows (n-gram contexts) of k consecutive blocks, with counts.

An evaluator that simulates each block after its k - 1 predecessors needs only the histogram. Its
work grows with the number of distinct windows, not with the length of the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Self

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.leb128 import read_leb128s, write_leb128s
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.trace import native
from compiler_opt_perf.trace.accesses import Stretch, read_stretches
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import (
    ACCESSES,
    BRANCHES,
    CODE,
    SAMPLE_ACCESSES,
    SAMPLE_BRANCHES,
    SAMPLE_FETCHES,
    WINDOWS,
    Record,
    Stream,
    Trace,
)
from compiler_opt_perf.trace.trace_writer import new_trace, write_blocks, write_code, write_record

SUFFIX = ".bbwindows"
FORMAT = "compiler-opt-perf/block-windows"
LONGEST = 64
_WINDOWS_IN_RECORD = 1 << 14
_OUT_OF_RANGE = "a block number is larger than the block table"
#: Number of samples of the run that a histogram keeps, and blocks in each.
SAMPLES = 600
SAMPLE_BLOCKS = 600
#: The branch predictor and the caches of code simulate about this many blocks at most, in whole
#: records, and those of the samples.
PREDICTED_BLOCKS = 200_000_000


class _Fields(msgspec.Struct, frozen=True):
    """The field that a histogram's description has in addition to a trace's."""

    window: Annotated[int, msgspec.Meta(ge=1, le=LONGEST)]


@dataclass(frozen=True)
class Simulated:
    """What simulated parts of a core made of executions of a run.

    Attributes:
      pieces: [P, 2] int64, beginning and end of each piece of the run that was simulated.
      mispredicted: [M] uint64, ascending: twice the position of the execution in the run, plus 1
        for a call.
      missed: [N, 4] int64, of executions in samples whose code missed a cache: position in the
        run, ascending; lines of the instruction cache, pages of the TLB, lines of decoded code.
    """

    pieces: npt.NDArray[np.int64]
    mispredicted: npt.NDArray[np.uint64]
    missed: npt.NDArray[np.int64]

    def covers(self, begin: int, end: int) -> bool:
        """Whether all of a part of the run was simulated."""
        known = np.minimum(self.pieces[:, 1], end) - np.maximum(self.pieces[:, 0], begin)
        return bool(np.maximum(known, 0).sum() >= end - begin)

    def mispredicted_in(self, begin: int, end: int) -> npt.NDArray[np.uint64]:
        """The mispredicted branches of a part of the run, from its beginning."""
        first, last = np.searchsorted(self.mispredicted, np.array([2 * begin, 2 * end], np.uint64))
        return self.mispredicted[first:last] - np.uint64(2 * begin)

    def missed_in(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """The executions of a part of the run that missed, from its beginning."""
        first, last = np.searchsorted(self.missed[:, 0], [begin, end])
        return self.missed[first:last] - [begin, 0, 0, 0]


@dataclass(frozen=True)
class Windows:
    """Distinct windows of a trace.

    Attributes:
      table: the B machine basic blocks.
      blocks: [N, k] uint32, each window's blocks, oldest first; B where it has fewer predecessors.
      counts: [N] uint64, occurrences of each window, falling.
      branches: [B, 4] uint64, counts of a simulated branch predictor by block: exits, mispredicted
        exits, calls, mispredicted calls; None when not simulated.
      simulated: what was simulated of executions; None when not simulated, or read from a file.
    """

    table: BlockTable
    blocks: Numbers
    counts: npt.NDArray[np.uint64]
    branches: npt.NDArray[np.uint64] | None = None
    simulated: Simulated | None = None

    @classmethod
    def count(cls, trace: Trace, length: int, *, predict: bool = False) -> Self:
        """Counts the windows of `length` blocks.

        Args:
          predict: simulate a branch predictor and caches of code, unless the trace consists of
            fragments.

        Raises:
          TraceError: the trace is damaged, or the length is not from 1 to LONGEST.
        """
        if not 1 <= length <= LONGEST:
            raise TraceError(f"windows of {length} blocks; expected 1 to {LONGEST}")
        counter = native.WindowCounter(length, len(trace.table))
        # Fragments lack the history that predictors learn from, and that fills caches.
        predict = predict and not trace.description.fragments
        predictor = native.BranchPredictor(trace.table) if predict else None
        caches = native.CodeCaches(trace.table) if predict else None
        total = trace.total
        share = min(1.0, PREDICTED_BLOCKS / max(1, total))
        seen = predicted = 0
        pieces: list[tuple[int, int]] = []
        missed = [np.empty((0, 4), np.int64)]
        places = [before + begin for _, before, begin, _ in _sample_places(trace)]
        starts_of_samples = np.array(places if predictor else [], np.int64)
        with Progress("blocks in windows", total) as progress:
            for stream in trace.streams.values():
                starts = True
                for numbers in trace.pieces(stream):
                    counter.add(numbers, starts)
                    begin, seen = seen, seen + len(numbers)
                    first, last = np.searchsorted(starts_of_samples, [begin - SAMPLE_BLOCKS, seen])
                    needed = predicted < share * seen or first < last
                    if predictor and caches and needed:
                        # The predecessor of the first block may have been left out.
                        predictor.add(numbers, begin, starts=starts or share < 1)
                        found = caches.add(numbers)
                        missed.append(_within_samples(found, begin, starts_of_samples[first:last]))
                        predicted += len(numbers)
                        pieces.append((begin, seen))
                    starts = False
                    progress.advance(len(numbers))
        if not predictor:
            return cls(trace.table, *counter.result())
        simulated = Simulated(
            np.array(pieces, np.int64).reshape(-1, 2),
            predictor.mispredicted(),
            np.concatenate(missed),
        )
        return cls(trace.table, *counter.result(), predictor.result(), simulated)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a window histogram. Raises TraceError when the file is damaged or another one."""
        file = Trace.load(path, format_=FORMAT)
        length = file.read_description(_Fields).window
        windows, counts, branches = [], [], None
        for record in file.records:
            if record.kind == WINDOWS:
                rows = _rows(file, record, length + 1)
                counts.append(rows[:, 0])
                deltas = (rows[:, 1:] >> np.uint64(1)).astype(np.int64)
                deltas ^= -(rows[:, 1:] & np.uint64(1)).astype(np.int64)
                numbers = np.cumsum(deltas, axis=1)
                if np.any((numbers < 0) | (numbers > len(file.table))):
                    raise _damaged(file, record, _OUT_OF_RANGE)
                windows.append(numbers.astype(np.uint32))
            elif record.kind == BRANCHES:
                rows = _rows(file, record, 5)
                branches = np.zeros((len(file.table), 4), np.uint64)
                places = np.cumsum(rows[:, 0])
                # The second test catches sums that wrap around.
                if np.any(places >= len(branches)) or np.any(rows[:, 0] > len(branches)):
                    raise _damaged(file, record, _OUT_OF_RANGE)
                branches[places.astype(np.int64)] = rows[:, 1:]
        if not windows:
            return cls(file.table, np.empty((0, length), np.uint32), np.empty(0, np.uint64))
        return cls(file.table, np.concatenate(windows), np.concatenate(counts), branches)


def write_windows(trace: Trace, length: int, output: Path) -> Windows:
    """Writes the histogram of a trace, with samples of the run, to `output`, NAME.bbwindows.

    Raises:
      TraceError: see Windows.count; or the output's name is wrong.
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    if output.suffix != SUFFIX:
        raise TraceError(f"{output}: the name of a window histogram must end with {SUFFIX}")
    windows = Windows.count(trace, length, predict=True)
    more = {"window": length, "total": int(windows.counts.sum())}
    with new_trace(output, trace.description, trace.table, FORMAT, more) as stream:
        for start in range(0, len(windows.counts), _WINDOWS_IN_RECORD):
            rows = slice(start, start + _WINDOWS_IN_RECORD)
            raw = _encode(windows.blocks[rows], windows.counts[rows])
            write_record(stream, WINDOWS, raw, count=len(windows.counts[rows]))
        if windows.branches is not None:
            executed = np.flatnonzero(windows.branches.any(axis=1))
            deltas = np.diff(executed, prepend=0)[:, np.newaxis]
            branch_rows = np.hstack([deltas, windows.branches[executed].astype(np.int64)])
            raw = write_leb128s(branch_rows.ravel().tolist())
            write_record(stream, BRANCHES, raw, count=len(executed))
        sampled: set[int] = set()
        for number, (begin, numbers, accesses) in enumerate(samples(trace)):
            sampled.update(numbers.tolist())
            write_blocks(stream, [numbers], number=number, ends=True)
            if accesses is not None:
                raw = _encode_accesses(accesses)
                write_record(stream, SAMPLE_ACCESSES, raw, number=number, count=len(accesses))
            if windows.simulated is not None:
                _write_simulated(windows.simulated, number, begin, len(numbers), stream)
        _copy_code(trace, sampled, stream)
    return windows


def _write_simulated(
    known: Simulated, number: int, begin: int, blocks: int, stream: BinaryIO
) -> None:
    """Writes what was simulated of a sample of the run, if all of it was."""
    end = begin + blocks
    if not known.covers(begin, end):
        return
    codes = known.mispredicted_in(begin, end)
    raw = write_leb128s(np.diff(codes, prepend=np.uint64(0)).tolist())
    write_record(stream, SAMPLE_BRANCHES, raw, number=number, count=len(codes))
    missed = known.missed_in(begin, end)
    missed[:, 0] = np.diff(missed[:, 0], prepend=0)
    raw = write_leb128s(missed.ravel().tolist())
    write_record(stream, SAMPLE_FETCHES, raw, number=number, count=len(missed))


def _within_samples(
    missed: npt.NDArray[np.uint16], begin: int, sample_begins: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The rows of `Simulated.missed` of a piece, which begins at `begin`, in the samples there."""
    inside = np.zeros(len(missed), bool)
    for place in (sample_begins - begin).tolist():
        inside[max(0, place) : max(0, place + SAMPLE_BLOCKS)] = True
    (places,) = np.nonzero(inside & missed.any(axis=1))
    return np.column_stack([begin + places, missed[places]])


def _copy_code(trace: Trace, sampled: set[int], stream: BinaryIO) -> None:
    """Copies the code of those blocks, and of the entries of their functions. Raises TraceError."""
    table = trace.table
    for record in trace.records:
        if record.kind == CODE:
            raw = trace.content(record)
            # It has all blocks, of which only the numbers come before their code.
            ends = np.cumsum(table.size, dtype=np.int64) + len(raw) - int(table.size.sum())
            if record.count != len(table) or len(raw) < int(table.size.sum()):
                raise _damaged(trace, record, "the code is not that of the blocks")
            functions = {int(table.function[number]) for number in sampled if number < len(table)}
            entered = np.flatnonzero(table.address == table.entry[table.function]).tolist()
            chosen = sorted(
                {number for number in sampled if number < len(table)}
                | {number for number in entered if table.function[number] in functions}
            )
            code = [raw[ends[n] - int(table.size[n]) : ends[n]] for n in chosen]
            write_code(stream, chosen, code)


def overlap(first: Windows, second: Windows) -> float:
    """Returns the overlap of two histograms of one binary: the sum of min(p, q), 0 to 1.

    Windows that begin before their stream or fragment are left out.

    Raises:
      TraceError: the window lengths or the binaries differ, or a histogram is empty.
    """
    if first.blocks.shape[1] != second.blocks.shape[1] or len(first.table) != len(second.table):
        raise TraceError("windows of different lengths or of different binaries cannot be compared")
    shares = []
    for windows in (first, second):
        whole = np.all(windows.blocks != len(windows.table), axis=1)
        total = int(windows.counts[whole].sum())
        if not total:
            raise TraceError("there are no whole windows to compare")
        rows = map(tuple, windows.blocks[whole].tolist())
        counts = windows.counts[whole].tolist()
        shares.append({row: count / total for row, count in zip(rows, counts, strict=True)})
    return float(sum(min(share, shares[1].get(row, 0.0)) for row, share in shares[0].items()))


def samples(trace: Trace) -> Iterator[tuple[int, Numbers, npt.NDArray[np.uint64] | None]]:
    """Yields samples evenly spread over a run; the whole run when it is short.

    Each has its position in the run, SAMPLE_BLOCKS blocks, or fewer at the end of a stream, and its
    accesses to memory as `Stretch.rows` has them; None where the trace has none. Raises TraceError.
    """
    for stream, before, begin, stretch in _sample_places(trace):
        end = min(begin + SAMPLE_BLOCKS, len(stream))
        numbers = np.concatenate(list(trace.part(stream, begin, end)))
        rows = None if stretch is None else stretch.rows(trace.table, numbers)
        yield before + begin, numbers, rows


def _sample_places(trace: Trace) -> Iterator[tuple[Stream, int, int, Stretch | None]]:
    """The samples of a run, in order: stream, its position in the run, begin in it, accesses."""
    step = max(SAMPLE_BLOCKS, trace.total // SAMPLES)
    before = 0
    for stream in trace.streams.values():
        # Samples begin half a step after each multiple of the step, counted over the whole run.
        first = (step // 2 - before) % step if step > SAMPLE_BLOCKS else 0
        begins = np.arange(first, len(stream), step)
        stretches: list[Stretch | None] = [None] * len(begins)
        if recorded := _stretches(trace, stream):
            # The nearest stretch begins less than a step away.
            places = np.array([stretch.first for stretch in recorded])
            nearest = np.unique(np.abs(places - begins[:, np.newaxis]).argmin(axis=1))
            stretches = [recorded[index] for index in nearest]
            begins = places[nearest]
        for begin, stretch in zip(begins.tolist(), stretches, strict=True):
            yield stream, before, begin, stretch
        before += len(stream)


def _stretches(trace: Trace, stream: Stream) -> list[Stretch]:
    """Those of a stream whose accesses were recorded. Raises TraceError: damaged."""
    found = []
    for record in trace.records:
        if record.kind == ACCESSES and record.stream == stream.number:
            try:
                found += read_stretches(trace.content(record))
            except ValueError as error:
                raise _damaged(trace, record, f"malformed: {error}") from error
    return [stretch for stretch in found if stretch.first < len(stream)]


def _encode(blocks: Numbers, counts: npt.NDArray[np.uint64]) -> bytes:
    """Encodes each window as its count and zigzag differences, in LEB128."""
    deltas = np.diff(blocks.astype(np.int64), axis=1, prepend=0)
    codes = (deltas << 1) ^ (deltas >> 63)
    return write_leb128s(
        np.hstack([counts.astype(np.int64)[:, np.newaxis], codes]).ravel().tolist()
    )


def _encode_accesses(rows: npt.NDArray[np.uint64]) -> bytes:
    """Encodes rows of `Stretch.rows` in LEB128, three numbers each."""
    position, byte, stores, address = rows.astype(np.int64).T
    deltas = np.diff(address, prepend=0)
    codes = (deltas << 1) ^ (deltas >> 63)
    columns = (np.diff(position, prepend=0), byte << 1 | stores, codes.astype(np.uint64))
    return write_leb128s(np.stack([c.astype(np.uint64) for c in columns], axis=1).ravel().tolist())


def _rows(file: Trace, record: Record, columns: int) -> npt.NDArray[np.uint64]:
    """Decodes the numbers of a record, [count, columns] uint64. Raises TraceError."""
    raw = file.content(record)
    try:
        return read_leb128s(raw).reshape(record.count, columns)
    except ValueError as error:
        raise _damaged(file, record, f"malformed: {error}") from error


def _damaged(file: Trace, record: Record, problem: str) -> TraceError:
    return TraceError(f"{file.path}: byte {record.offset}: {problem}; write the file again")
