# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A plausible path through a program of which no trace exists.

When a candidate inlines other calls, the blocks of an old trace are not its blocks. But its address
map can hold which blocks follow each other, and debug info leads from its blocks to the counts of a
PMU profile. From that, fragments of a path are drawn: each begins at a block drawn by its count,
goes on as a Markov chain, into direct calls where they stand, and back behind them. So blocks and
edges are about as frequent as the profile has it; what a branch did the time before is forgotten.
"""

import bisect
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.binary.address_map import read_address_map, successors_of
from compiler_opt_perf.binary.disassembly import Kind, MachineCode
from compiler_opt_perf.binary.elf import build_id
from compiler_opt_perf.binary.symbolize import CallSite, Line, symbolize
from compiler_opt_perf.profile.coverage import walk
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.files import atomic_write
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.run.symbol_names import canonical_name
from compiler_opt_perf.trace.block_table import BlockTable, read_block_table
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import (
    SUFFIX,
    Trace,
    TraceDescription,
    write_blocks,
    write_end,
    write_start,
)
from compiler_opt_perf.trace.windows import Windows

# Blocks in one fragment: many windows of an evaluator, few enough for many fragments.
_FRAGMENT = 1000
# Deeper recursion is cut: the call is stepped over.
_DEEPEST = 256
# Rounds of fitting edges to the blocks' counts.
_ROUNDS = 50

_Thing = TypeVar("_Thing")


class _Draw(Generic[_Thing]):
    """Draws one of some things by their weights."""

    def __init__(self, things: Sequence[_Thing], weights: Sequence[float]):
        self._things = things
        self._sums = list(itertools.accumulate(weights))

    def __bool__(self) -> bool:
        return bool(self._sums) and self._sums[-1] > 0

    def __call__(self, generator: random.Random) -> _Thing:
        place = bisect.bisect_right(self._sums, generator.random() * self._sums[-1])
        return self._things[min(place, len(self._things) - 1)]


class _Site(NamedTuple):
    """A direct call: its block, and which of the block's calls it is."""

    block: int
    place: int


@dataclass(frozen=True)
class Flow:
    """How control flows through a program, by block numbers.

    Attributes:
      table: the blocks.
      counts: how often each is executed.
      next: for each block, its successors in the function.
      calls: for each block, the entry blocks of the functions that it calls, in order; None for an
        indirect call.
      tail: for each block that ends by jumping to another function, that function's entry.
      callers: for each function, the calls of it.
      indirect: entry blocks of functions that are called more often than direct calls explain.
    """

    table: BlockTable
    counts: list[float]
    next: list[_Draw[int]]
    calls: list[list[int | None]]
    tail: dict[int, int]
    callers: dict[int, _Draw[_Site]]
    indirect: _Draw[int]

    @classmethod
    def read(cls, binary: Path, profile: Profile) -> Self:
        """Reads the flow from a binary that was compiled with ANALYSIS_FLAGS.

        Args:
          profile: of another build of the program, or of this one.

        Raises:
          TraceError: the profile has no counts for it.
          BinaryError: its address map does not say which blocks follow each other, or it has no
            debug info.
        """
        table = read_block_table(binary)
        number_of = {
            pair: number
            for number, pair in enumerate(
                zip(table.function.tolist(), table.block_id.tolist(), strict=True)
            )
        }
        successors: list[list[tuple[int, float]]] = [[] for _ in range(len(table))]
        entries: dict[int, int] = {}
        for index, function in enumerate(read_address_map(binary)):
            followers = successors_of(function, binary)
            for (_, _, block_id), follow in zip(function.blocks, followers, strict=True):
                successors[number_of[index, block_id]] = [
                    (number_of[index, target], probability) for target, probability in follow
                ]
            if function.blocks:
                entries[function.entry] = number_of[index, function.blocks[0][2]]
        blocks_of, calls, tail = _read_code(binary, table, entries, successors)
        known = _block_counts(binary, profile, blocks_of, len(table))
        if not np.nansum(known):
            raise TraceError(
                f"{binary}: {profile.manifest.path} has no executions of its lines; is it a "
                "profile of this program?"
            )
        # A block runs no more often than what it calls is entered: the cases of a switch that a
        # macro writes on one line are told apart by that.
        for entry in entries.values():
            name = canonical_name(table.names[table.function[entry]])
            known[entry] = profile.samples.entries.get(name, 0)
        for number, targets in enumerate(calls):
            for target in targets:
                if target is not None:
                    known[number] = np.fmin(known[number], known[target])
        counts, draws = _fit(known, successors, set(entries.values()))
        sites: dict[int, list[_Site]] = defaultdict(list)
        inflow: dict[int, float] = defaultdict(float)
        for number, targets in enumerate(calls):
            for place, target in enumerate(targets):
                if target is not None:
                    sites[int(table.function[target])].append(_Site(number, place))
                    inflow[target] += counts[number]
        for number, target in tail.items():
            inflow[target] += counts[number]
        callers = {
            function: _Draw(calling, [counts[site.block] for site in calling])
            for function, calling in sites.items()
        }
        unexplained = {
            entry: counts[entry] - inflow[entry]
            for entry in entries.values()
            if counts[entry] > inflow[entry]
        }
        indirect = _Draw(list(unexplained), list(unexplained.values()))
        return cls(table, counts, draws, calls, tail, callers, indirect)

    def fragment(self, generator: random.Random, start: int, length: int) -> list[int]:
        """At most `length` blocks from `start` on; less where the path leaves what is known."""
        path: list[int] = []
        # Calls that are under way: the caller's block and the place of its next call.
        stack: list[tuple[int, int]] = []
        block, place = start, -1
        returns = 0
        while len(path) < length:
            if place < 0:
                path.append(block)
                place = returns = 0
            if place < len(self.calls[block]):
                target = self.calls[block][place]
                if target is None and self.indirect:
                    target = self.indirect(generator)
                place += 1
                if target is not None and len(stack) < _DEEPEST:
                    stack.append((block, place))
                    block, place = target, -1
                continue
            if self.next[block]:
                block, place = self.next[block](generator), -1
            elif block in self.tail:
                block, place = self.tail[block], -1
            elif stack:
                block, place = stack.pop()
            else:
                # Who called is not known: one of the callers, by how often they call.
                callers = self.callers.get(int(self.table.function[block]))
                returns += 1
                if not callers or returns > _DEEPEST:
                    break
                site = callers(generator)
                block, place = site.block, site.place + 1
        return path


def _read_code(
    binary: Path,
    table: BlockTable,
    entries: dict[int, int],
    successors: Sequence[Sequence[tuple[int, float]]],
) -> tuple[dict[int, int], list[list[int | None]], dict[int, int]]:
    """The block of each instruction, the calls in each block in order, and tail calls."""
    blocks_of: dict[int, int] = {}
    calls: list[list[int | None]] = [[] for _ in range(len(table))]
    tail: dict[int, int] = {}
    code = MachineCode.read(binary)
    addresses, numbers = (column.tolist() for column in table.starts())
    for start, after, block in zip(addresses, [*addresses[1:], 2**64], numbers, strict=True):
        for one in code.instructions(start, min(after, start + int(table.size[block]))):
            blocks_of[one.address] = block
            target = entries.get(one.target) if one.target is not None else None
            if Kind.CALL in one.kind:
                # What is called in other files leaves no trace.
                if target is not None or Kind.INDIRECT in one.kind:
                    calls[block].append(target)
            elif one.leaves and target is not None and not successors[block]:
                tail[block] = target
    return blocks_of, calls, tail


class _Executions:
    """How often a line ran in an inlined copy, by a profile of code with other inlining."""

    def __init__(self, profile: Profile):
        column = profile.index["executions"]
        self._exact = {
            (function, sites, line): float(counts[column])
            for function, samples in profile.samples.functions.items()
            for (_, sites), line, counts in walk(function, (), samples)
        }
        self._entries = profile.samples.entries
        self._flat = {
            function: {line: float(counts[column]) for line, counts in lines.items()}
            for function, lines in profile.functions.items()
        }

    def of(self, function: str, sites: tuple[CallSite, ...], line: Line) -> float | None:
        """The profile's count of the line; None when it has none.

        What was not inlined like this in the profiled code is given the share of the function's
        executions that this call had.
        """
        count = self._exact.get((function, sites, line))
        if count is not None:
            return count
        if not sites:
            return self._flat.get(function, {}).get(line)
        callee = sites[-1].callee
        count = self._exact.get((callee, (), line))
        entered: float = self._entries.get(callee, 0)
        if count is None or not entered:
            # It was always inlined: its first line tells how often it was entered.
            lines = self._flat.get(callee, {})
            if line not in lines:
                return None
            count, entered = lines[line], lines[min(lines)]
        # A call has its line wherever it stands: without a count it did not run.
        calls = self.of(function, sites[:-1], sites[-1].line) or 0.0
        return count * min(1.0, calls / entered) if entered else 0.0


def _block_counts(
    binary: Path, profile: Profile, blocks_of: dict[int, int], number: int
) -> npt.NDArray[np.float64]:
    """Executions of each block by its lines' counts; NaN where none of its lines has one.

    The largest of its instructions' counts, as LLVM's own loader of sample profiles takes it.
    """
    executions = _Executions(profile)
    counts = np.full(number, np.nan)
    for address, location in symbolize(binary, blocks_of).locations.items():
        count = executions.of(location.function, location.call_sites, location.line)
        if count is not None:
            block = blocks_of[address]
            counts[block] = np.fmax(counts[block], count / location.duplication)
    return counts


def _fit(
    known: npt.NDArray[np.float64],
    successors: Sequence[Sequence[tuple[int, float]]],
    entries: set[int],
) -> tuple[list[float], list[_Draw[int]]]:
    """Fits edges to the blocks' counts: what leaves a block, and what enters it, is its count.

    Iterative proportional fitting from the compiler's probabilities on; a block without a count
    takes what enters it.
    """
    edges = [(b, s, p) for b, follow in enumerate(successors) for s, p in follow]
    source = np.array([b for b, _, _ in edges], np.int64)
    target = np.array([s for _, s, _ in edges], np.int64)
    # No way is shut: the profile may know better.
    weight = np.array([max(p, 1e-3) for _, _, p in edges])
    number = len(known)
    has_count = ~np.isnan(known)
    is_entry = np.isin(np.arange(number), list(entries))
    counts = np.where(has_count, known, 0.0)
    weight *= np.where(has_count, known, 1.0)[source]
    for _ in range(_ROUNDS):
        entering = np.bincount(target, weight, number)
        counts = np.where(has_count, known, np.where(is_entry, counts, entering))
        fitted = has_count & ~is_entry & (entering > 0)
        factor = np.where(fitted, counts / np.maximum(entering, 1e-300), 1.0)
        weight *= factor[target]
        leaving = np.bincount(source, weight, number)
        factor = np.where(leaving > 0, counts / np.maximum(leaving, 1e-300), 0.0)
        weight *= factor[source]
    # Where nothing is known to leave, the compiler's guess has to do.
    leaving = np.bincount(source, weight, number)
    guess = np.array([p for _, _, p in edges])
    chance = np.where(leaving[source] > 0, weight / np.maximum(leaving[source], 1e-300), guess)
    # One line may be in several blocks, and then its count is too large for some: what begins or
    # ends a loop has that of the loop. No block can run more often than it is entered.
    for _ in range(_ROUNDS):
        entering = np.bincount(target, counts[source] * chance, number)
        counts = np.where(is_entry, counts, np.minimum(counts, entering))
    ways: list[tuple[list[int], list[float]]] = [([], []) for _ in range(number)]
    for block, follower, part in zip(
        source.tolist(), target.tolist(), chance.tolist(), strict=True
    ):
        ways[block][0].append(follower)
        ways[block][1].append(part)
    return counts.tolist(), [_Draw(*way) for way in ways]


def synthesise(binary: Path, profile: Profile, output: Path, *, blocks: int, seed: int) -> Trace:
    """Draws a trace of at least `blocks` blocks and writes it.

    Args:
      binary: compiled with ANALYSIS_FLAGS and debug info for profiling.
      profile: of another build of the program.
      output: NAME.bbtrace.
      blocks: how long it shall be.
      seed: the same seed gives the same trace.

    Raises:
      TraceError: as Flow.read, or the output's name is wrong.
      BinaryError: as Flow.read.
      FileWriteError: the disk is full, or the output folder cannot be written.
    """
    if output.suffix != SUFFIX:
        raise TraceError(f"{output}: the name of a block trace must end with {SUFFIX}")
    flow = Flow.read(binary, profile)
    logging.info("seed %d", seed)
    tool = f"synthesis from {profile.manifest.path.name}, seed {seed}"
    description = TraceDescription(
        binary.name, build_id(binary), (binary.name,), tool, fragments=True
    )
    with atomic_write(output) as temporary, Progress("blocks drawn", blocks) as progress:
        with temporary.open("wb") as stream:
            write_start(stream, description, flow.table)
            write_blocks(stream, _fragments(flow, blocks, seed, progress), number=0, ends=True)
        write_end(temporary)
    return Trace.load(output, quiet=True)


def _fragments(flow: Flow, blocks: int, seed: int, progress: Progress) -> Iterator[Numbers]:
    generator = random.Random(seed)
    start = _Draw(range(len(flow.counts)), flow.counts)
    drawn = 0
    while drawn < blocks:
        path = flow.fragment(generator, start(generator), _FRAGMENT)
        drawn += len(path)
        progress.advance(len(path))
        yield np.array([*path, len(flow.table)], np.uint32)


def overlap(first: Windows, second: Windows) -> float:
    """Which share two histograms of one binary have in common: the sum of min(p, q), 0 to 1.

    Windows that begin before a stream or a fragment does are left out.

    Raises:
      TraceError: they are of different lengths or binaries, or one is empty.
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
