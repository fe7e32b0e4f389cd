# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Synthesises a trace of a program from a PMU profile of another build.

A candidate that inlines other calls has other blocks than an old trace. But its address map names
the successors of each block, and debug info maps the counts of a PMU profile to its blocks. From
these, fragments of a path are drawn. Each begins at a block drawn by its count. It continues as a
Markov chain, which enters direct calls and returns from them. Blocks and edges are about as
frequent as in the profile; the history of a branch has no effect.
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
from compiler_opt_perf.run.progress import Progress
from compiler_opt_perf.run.symbol_names import canonical_name
from compiler_opt_perf.trace.block_table import BlockTable, read_block_table
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import Trace, TraceDescription
from compiler_opt_perf.trace.trace_writer import new_trace, require_suffix, write_blocks

# Blocks in one fragment: many windows for an evaluator, few enough for many fragments.
_FRAGMENT = 1000
# Deeper calls are stepped over, which bounds recursion.
_DEEPEST = 256
# Iterations of fitting edges to the blocks' counts.
_ROUNDS = 50

_Value = TypeVar("_Value")


class _Distribution(Generic[_Value]):
    """Draws one of several values by their weights."""

    def __init__(self, values: Sequence[_Value], weights: Sequence[float]):
        self._values = values
        self._sums = list(itertools.accumulate(weights))

    def __bool__(self) -> bool:
        return bool(self._sums) and self._sums[-1] > 0

    def __call__(self, generator: random.Random) -> _Value:
        place = bisect.bisect_right(self._sums, generator.random() * self._sums[-1])
        return self._values[min(place, len(self._values) - 1)]


class _DirectCall(NamedTuple):
    """A direct call: its block, and its position among the block's calls."""

    block: int
    position: int


@dataclass(frozen=True)
class Flow:
    """The control flow of a program, by block numbers.

    Attributes:
      table: the machine basic blocks.
      counts: [B] executions of each block.
      next: [B] distribution of each block's successors in its function.
      calls: [B] entry blocks of the functions that each block calls, in order; None for an
        indirect call.
      tail: block that ends with a tail call -> entry block of the callee.
      callers: index of a function -> distribution of the direct calls that enter it.
      indirect: distribution of entry blocks, weighted by the entries that no direct call explains.
    """

    table: BlockTable
    counts: list[float]
    next: list[_Distribution[int]]
    calls: list[list[int | None]]
    tail: dict[int, int]
    callers: dict[int, _Distribution[_DirectCall]]
    indirect: _Distribution[int]

    @classmethod
    def read(cls, binary: Path, profile: Profile) -> Self:
        """Reads the flow from a binary that was compiled with ANALYSIS_FLAGS.

        Args:
          profile: profile of any build of the program.

        Raises:
          TraceError: the profile has no counts for the binary's lines.
          BinaryError: the address map has no successors, or the binary has no debug info.
        """
        table = read_block_table(binary)
        entries, successors = _read_successors(binary, table)
        blocks_of, calls, tail = _read_code(binary, table, entries, successors)
        known = _block_counts(binary, profile, blocks_of, len(table))
        if not np.nansum(known):
            raise TraceError(
                f"{binary}: {profile.manifest.path} has no executions of its lines; is it a "
                "profile of this program?"
            )
        # A block runs at most as often as its callees are entered. This bounds the counts of switch
        # cases that a macro puts on one line.
        for entry in entries.values():
            name = canonical_name(table.names[table.function[entry]])
            known[entry] = profile.samples.entries.get(name, 0)
        for number, targets in enumerate(calls):
            for target in targets:
                if target is not None:
                    known[number] = np.fmin(known[number], known[target])
        counts, draws = _fit(known, successors, set(entries.values()))
        direct_calls: dict[int, list[_DirectCall]] = defaultdict(list)
        inflow: dict[int, float] = defaultdict(float)
        for number, targets in enumerate(calls):
            for position, target in enumerate(targets):
                if target is not None:
                    direct_calls[int(table.function[target])].append(_DirectCall(number, position))
                    inflow[target] += counts[number]
        for number, target in tail.items():
            inflow[target] += counts[number]
        callers = {
            function: _Distribution(calling, [counts[call.block] for call in calling])
            for function, calling in direct_calls.items()
        }
        unexplained = {
            entry: counts[entry] - inflow[entry]
            for entry in entries.values()
            if counts[entry] > inflow[entry]
        }
        indirect = _Distribution(list(unexplained), list(unexplained.values()))
        return cls(table, counts, draws, calls, tail, callers, indirect)

    def fragment(self, generator: random.Random, start: int, length: int) -> list[int]:
        """Draws up to `length` blocks from `start` on; fewer when a return has no known caller."""
        path: list[int] = []
        # The call stack: the caller's block and the index of its next call.
        stack: list[tuple[int, int]] = []
        # `call` is the index of the block's next call; -1 when the block has just been entered.
        block, call = start, -1
        returns = 0
        while len(path) < length:
            if call < 0:
                path.append(block)
                call = returns = 0
            if call < len(self.calls[block]):
                target = self.calls[block][call]
                if target is None and self.indirect:
                    target = self.indirect(generator)
                call += 1
                if target is not None and len(stack) < _DEEPEST:
                    stack.append((block, call))
                    block, call = target, -1
                continue
            if self.next[block]:
                block, call = self.next[block](generator), -1
            elif block in self.tail:
                block, call = self.tail[block], -1
            elif stack:
                block, call = stack.pop()
            else:
                # The caller is unknown: draw one by its call count.
                callers = self.callers.get(int(self.table.function[block]))
                returns += 1
                if not callers or returns > _DEEPEST:
                    break
                caller = callers(generator)
                block, call = caller.block, caller.position + 1
        return path


def _read_successors(
    binary: Path, table: BlockTable
) -> tuple[dict[int, int], list[list[tuple[int, float]]]]:
    """Returns entry blocks by function address, and (block, probability) of all successors [B].

    Raises BinaryError: see `Flow.read`.
    """
    number_of = {
        pair: number
        for number, pair in enumerate(
            zip(table.function.tolist(), table.block_id.tolist(), strict=True)
        )
    }
    entries: dict[int, int] = {}
    successors: list[list[tuple[int, float]]] = [[] for _ in range(len(table))]
    for index, function in enumerate(read_address_map(binary)):
        per_block = successors_of(function, binary)
        for (_, _, block_id), edges in zip(function.blocks, per_block, strict=True):
            successors[number_of[index, block_id]] = [
                (number_of[index, target], probability) for target, probability in edges
            ]
        if function.blocks:
            entries[function.entry] = number_of[index, function.blocks[0][2]]
    return entries, successors


def _read_code(
    binary: Path,
    table: BlockTable,
    entries: dict[int, int],
    successors: Sequence[Sequence[tuple[int, float]]],
) -> tuple[dict[int, int], list[list[int | None]], dict[int, int]]:
    """Returns the block of each instruction, the calls of each block in order, and tail calls."""
    blocks_of: dict[int, int] = {}
    calls: list[list[int | None]] = [[] for _ in range(len(table))]
    tail: dict[int, int] = {}
    code = MachineCode.read(binary)
    addresses, numbers = (column.tolist() for column in table.starts())
    for start, after, block in zip(addresses, [*addresses[1:], 2**64], numbers, strict=True):
        end = min(after, start + int(table.size[block]))
        for instruction in code.instructions(start, end):
            blocks_of[instruction.address] = block
            target = None if instruction.target is None else entries.get(instruction.target)
            if Kind.CALL in instruction.kind:
                # Calls of other binaries have no traced blocks.
                if target is not None or Kind.INDIRECT in instruction.kind:
                    calls[block].append(target)
            elif instruction.leaves and target is not None and not successors[block]:
                tail[block] = target
    return blocks_of, calls, tail


class _Executions:
    """Estimates executions of a line in an inline stack from a profile with other inlining."""

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

    def count(self, function: str, sites: tuple[CallSite, ...], line: Line) -> float | None:
        """Returns the profile's count of the line; None when it has none.

        If the profiled code had not inlined these calls, the line gets this call's share of the
        callee's executions.
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
            # The callee was always inlined: its first line counts its entries.
            lines = self._flat.get(callee, {})
            if line not in lines:
                return None
            count, entered = lines[line], lines[min(lines)]
        # A call has a line in every build: without a count it did not run.
        calls = self.count(function, sites[:-1], sites[-1].line) or 0.0
        return count * min(1.0, calls / entered) if entered else 0.0


def _block_counts(
    binary: Path, profile: Profile, blocks_of: dict[int, int], number: int
) -> npt.NDArray[np.float64]:
    """Returns executions of each block, [B]; NaN where none of its lines has a count.

    A block gets the largest count of its instructions, as in LLVM's loader of sample profiles.
    """
    executions = _Executions(profile)
    counts = np.full(number, np.nan)
    for address, location in symbolize(binary, blocks_of).locations.items():
        count = executions.count(location.function, location.call_sites, location.line)
        if count is not None:
            block = blocks_of[address]
            counts[block] = np.fmax(counts[block], count / location.duplication)
    return counts


def _fit(
    known: npt.NDArray[np.float64],
    successors: Sequence[Sequence[tuple[int, float]]],
    entries: set[int],
) -> tuple[list[float], list[_Distribution[int]]]:
    """Fits edge weights so that inflow and outflow of each block equal its count.

    Iterative proportional fitting begins with the compiler's branch probabilities. A block without
    a count gets its inflow.

    Returns:
      The count of each block, and the distribution of its successors.
    """
    edges = [(b, s, p) for b, block_edges in enumerate(successors) for s, p in block_edges]
    source = np.array([b for b, _, _ in edges], np.int64)
    target = np.array([s for _, s, _ in edges], np.int64)
    # The profile may contradict a probability of zero.
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
    # Blocks without known outflow keep the compiler's probabilities.
    leaving = np.bincount(source, weight, number)
    guess = np.array([p for _, _, p in edges])
    chance = np.where(leaving[source] > 0, weight / np.maximum(leaving[source], 1e-300), guess)
    # A line in several blocks gives some of them too large a count: a loop's preheader gets the
    # count of the loop. No block can run more often than it is entered.
    for _ in range(_ROUNDS):
        entering = np.bincount(target, counts[source] * chance, number)
        counts = np.where(is_entry, counts, np.minimum(counts, entering))
    weighted: list[tuple[list[int], list[float]]] = [([], []) for _ in range(number)]
    for block, successor, share in zip(
        source.tolist(), target.tolist(), chance.tolist(), strict=True
    ):
        weighted[block][0].append(successor)
        weighted[block][1].append(share)
    return counts.tolist(), [_Distribution(*pair) for pair in weighted]


def synthesise(binary: Path, profile: Profile, output: Path, *, blocks: int, seed: int) -> Trace:
    """Draws a trace of at least `blocks` blocks and writes it.

    Args:
      binary: compiled with ANALYSIS_FLAGS and debug info for profiling.
      profile: profile of another build of the program.
      output: NAME.bbtrace.
      blocks: least length of the trace, in blocks.
      seed: seed of the draws; the same seed gives the same trace.

    Raises:
      TraceError: see Flow.read; or the output's name is wrong.
      BinaryError: see Flow.read.
      FileWriteError: the disk is full, or the output folder cannot be written.
    """
    require_suffix(output)
    flow = Flow.read(binary, profile)
    logging.info("seed %d", seed)
    tool = f"synthesis from {profile.manifest.path.name}, seed {seed}"
    description = TraceDescription(
        binary.name, build_id(binary), (binary.name,), tool, fragments=True
    )
    with (
        new_trace(output, description, flow.table) as stream,
        Progress("blocks drawn", blocks) as progress,
    ):
        write_blocks(stream, _fragments(flow, blocks, seed, progress), number=0, ends=True)
    return Trace.load(output, quiet=True)


def _fragments(flow: Flow, blocks: int, seed: int, progress: Progress) -> Iterator[Numbers]:
    generator = random.Random(seed)
    start = _Distribution(range(len(flow.counts)), flow.counts)
    drawn = 0
    while drawn < blocks:
        path = flow.fragment(generator, start(generator), _FRAGMENT)
        drawn += len(path)
        progress.advance(len(path))
        yield np.array([*path, len(flow.table)], np.uint32)
