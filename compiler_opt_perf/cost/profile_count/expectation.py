# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known of the executions of blocks, from the source lines of their instructions.

Each rule is a function that returns observations for `block_counts.fit`: bounds for sums of counts
of blocks, with a weight. `of_profiled` has the rules for the profiled binary, whose lines the
profile has counts of; `of_candidate` those for another build, by what the profiled binary executed.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compiler_opt_perf.binary.disassembly import Kind
from compiler_opt_perf.binary.symbolize import Line
from compiler_opt_perf.cost.block_counts import Observation
from compiler_opt_perf.cost.object_code import FunctionCode, Instruction
from compiler_opt_perf.pmu.coverage import Stack as Instance

# Weights of observations: what one execution outside of the bounds costs in the fit. Where
# observations contradict each other, those that weigh less are given up.
#: Counted in the profile, or the same instructions in both binaries.
SURE = 1.0
#: Follows from how compilers transform loops and merge blocks.
LIKELY = 0.5
#: A range, for it is not known which of several instructions this one is.
VAGUE = 0.2
#: The profiled binary did not run the line, or had its work in other lines.
ABSENT = 0.1


class Copy(NamedTuple):
    """An instruction of the profiled binary.

    Attributes:
      executions: how often it ran.
      duplication: how many copies of it the optimiser made by unrolling or vectorising.
      block: number of its block.
    """

    executions: float
    duplication: int
    block: int


#: The instructions of one line in one instance, by mnemonic.
Copies = Mapping[str, Sequence[Copy]]


def duplication(instruction: Instruction) -> int:
    """How many copies of the instruction, which has a location, the optimiser made."""
    assert instruction.location is not None
    return instruction.location.duplication


def by_line(code: FunctionCode) -> Iterator[tuple[Instance, Line, list[Instruction]]]:
    """The instructions of each line, in each instance.

    Repeated string instructions are left out: the simulator counts their iterations.
    """
    groups: dict[tuple[Instance, Line], list[Instruction]] = {}
    for instruction in code.instructions:
        at = instruction.location
        if at is not None and not instruction.mnemonic.startswith("rep"):
            instance = at.function, at.call_sites
            groups.setdefault((instance, at.line), []).append(instruction)
    for (instance, line), instructions in groups.items():
        yield instance, line, instructions


# The profiled binary: each line has counts in the profile


class LineCounts(NamedTuple):
    """The profile's counts at a line; None where the profile has no such event.

    Attributes:
      executions: of the line's most frequent instruction.
      retired: of all its instructions, summed.
      branches: of its conditional branches, summed.
    """

    executions: float
    retired: float | None
    branches: float | None


def of_profiled(instructions: Sequence[Instruction], counts: LineCounts) -> Iterator[Observation]:
    """What the profile says of the blocks of a line's instructions."""
    for instruction in instructions:
        yield most_frequent(instruction, counts)
    if counts.retired is not None:
        yield summed(instructions, counts.retired)
    branches = [one for one in instructions if one.kind & Kind.CONDITIONAL]
    if branches and counts.branches is not None:
        yield summed(branches, counts.branches)


def most_frequent(instruction: Instruction, counts: LineCounts) -> Observation:
    """No instruction ran more often than its line, whose count the copies of unrolling share.

    Without a count of retired instructions, which the less frequent ones show in, each is taken to
    have run as often as the line.
    """
    most = counts.executions / duplication(instruction)
    if counts.retired is None:
        return Observation((instruction.block,), most, most, VAGUE)
    return Observation((instruction.block,), 0.0, most, SURE)


def summed(instructions: Iterable[Instruction], count: float) -> Observation:
    """The profile has the sum of what these instructions executed."""
    return Observation(tuple(one.block for one in instructions), count, count, SURE)


def calling(blocks: Sequence[int], count: float) -> Observation:
    """The profile has how often the calls of one callee at one line were made."""
    return Observation(tuple(blocks), count, count, SURE)


# A candidate: instructions of the same lines in the profiled binary


class Range(NamedTuple):
    """Executions of instructions of the profiled binary: of the rarest, the most frequent, all."""

    least: float
    most: float
    total: float


@dataclass(frozen=True)
class KnownLine:
    """What the profiled binary has of a line, where one instance of the candidate runs it.

    Attributes:
      copies: of each instance of the profiled binary that has instructions of the line, the share
        of its executions that happens in the candidate's instance, and the instructions.
      inlined_calls: of instances without such instructions, how often calls of the line were made
        that are inlined in them, times the shares; None without such calls.
      incomplete: there are instances that ran and have no instructions of the line. How often the
        line would have run there is not known.
    """

    copies: Sequence[tuple[float, Copies]]
    inlined_calls: float | None = None
    incomplete: bool = False

    def range_of(self, mnemonic: str) -> Range:
        """Executions of the instructions with a mnemonic; in instances without, of all others."""
        ranges = []
        for share, copies in self.copies:
            apart = executions(copies.get(mnemonic) or all_copies(copies))
            ranges.append(Range(share * min(apart), share * max(apart), share * sum(apart)))
        return Range(*map(sum, zip(*ranges, strict=True)))

    def at_most(self, count: float) -> float:
        """An upper bound, which holds only if there were no further executions."""
        return math.inf if self.incomplete else count

    def has_same(self, mnemonic: str, group: Sequence[Instruction]) -> bool:
        """Whether each instance has as many instructions with the mnemonic, unrolled as often."""
        wanted = sorted(map(duplication, group))
        return all(
            sorted(copy.duplication for copy in copies.get(mnemonic, ())) == wanted
            for _, copies in self.copies
        )

    def is_unrolled_otherwise(self, instructions: Sequence[Instruction]) -> bool:
        """Whether the candidate's loops are unrolled or vectorised otherwise."""
        known = {copy.duplication for _, copies in self.copies for copy in all_copies(copies)}
        return set(map(duplication, instructions)) != known

    def is_merged(self, mnemonic: str, group: Sequence[Instruction]) -> bool:
        """Whether several copies may have become those of one block of the candidate."""
        return len({one.block for one in group}) == 1 and all(
            mnemonic in copies for _, copies in self.copies
        )


def of_candidate(line: KnownLine, instructions: Sequence[Instruction]) -> Iterator[Observation]:
    """What is expected of the blocks of a line's instructions; one rule for each mnemonic."""
    if not line.copies:
        if line.inlined_calls is not None:
            yield from inlined_calls(instructions, line.inlined_calls)
        elif not line.incomplete:
            yield from never_executed(instructions)
        return
    groups: dict[str, list[Instruction]] = {}
    for instruction in instructions:
        groups.setdefault(instruction.mnemonic, []).append(instruction)
    otherwise = line.is_unrolled_otherwise(instructions)
    plain = all(duplication(one) == 1 for one in instructions)
    for mnemonic, group in groups.items():
        if otherwise and plain:
            yield from rolled(line, mnemonic, group)
        elif line.has_same(mnemonic, group):
            yield from same(line, mnemonic, group, otherwise)
        elif line.is_merged(mnemonic, group):
            yield from merged(line, mnemonic, group, otherwise)
        else:
            yield from different(line, mnemonic, group, otherwise)


def inlined_calls(instructions: Sequence[Instruction], calls: float) -> Iterator[Observation]:
    """The profiled binary inlined the line's calls and has no more of it: it ran once a call."""
    for instruction in instructions:
        yield Observation((instruction.block,), calls, calls, VAGUE)


def never_executed(instructions: Sequence[Instruction]) -> Iterator[Observation]:
    """No instance that the profile knows ran the line."""
    for instruction in instructions:
        yield Observation((instruction.block,), 0.0, 0.0, ABSENT)


def rolled(line: KnownLine, mnemonic: str, group: Sequence[Instruction]) -> Iterator[Observation]:
    """A plain loop that the profiled binary unrolled or vectorised has the rounds of both loops.

    They are those of the unrolled loop, and of the plain one that does the rest. A block ran at
    least as often as the two have rounds together, and at most as often as all copies together;
    one of several blocks may have a part of that only.
    """
    least = low = high = 0.0
    for share, copies in line.copies:
        plain, unrolled = rounds(all_copies(copies))
        if unrolled:
            least += share * min([*plain, *unrolled])
            low += share * (max(plain, default=0.0) + sum(unrolled))
            high += share * (sum(plain) + sum(unrolled))
        else:
            apart = executions(copies.get(mnemonic) or all_copies(copies))
            least += share * min(apart)
            low += share * min(apart)
            high += share * max(apart)
    blocks = sorted({one.block for one in group})
    for block in blocks:
        if len(blocks) == 1:
            yield Observation((block,), low, line.at_most(high), LIKELY)
        else:
            yield Observation((block,), least, line.at_most(high), VAGUE)


def same(
    line: KnownLine, mnemonic: str, group: Sequence[Instruction], otherwise: bool
) -> Iterator[Observation]:
    """The same instructions as in the profiled binary ran as often, in all.

    Of several it is not known which one is which: each is within the range of all.

    Args:
      otherwise: other instructions of the line are unrolled otherwise (`is_unrolled_otherwise`).
    """
    count = sum(
        share * sum(copy.executions for copy in copies[mnemonic]) for share, copies in line.copies
    )
    together = tuple(one.block for one in group)
    yield Observation(together, count, line.at_most(count), SURE)
    if len(group) > 1:
        least, most, total = line.range_of(mnemonic)
        for factor, blocks in _by_duplication(group):
            if factor == 1:
                yield from _each(blocks, least, line.at_most(total if otherwise else most))


def merged(
    line: KnownLine, mnemonic: str, group: Sequence[Instruction], otherwise: bool
) -> Iterator[Observation]:
    """Copies of several blocks that became one ran as often as the most frequent, or all of them.

    Args:
      otherwise: as of `different`.
    """
    _, most, total = line.range_of(mnemonic)
    for factor, blocks in _by_duplication(group):
        if factor == 1:
            yield Observation((blocks[0],), most, line.at_most(total), LIKELY)
        else:
            yield _unrolled(blocks, factor, otherwise, most, line.at_most(total), LIKELY)


def different(
    line: KnownLine, mnemonic: str, group: Sequence[Instruction], otherwise: bool
) -> Iterator[Observation]:
    """Other instructions than in the profiled binary are within the range of the line's.

    Args:
      otherwise: the line is unrolled otherwise: an instruction may do the work of all.
    """
    least, most, total = line.range_of(mnemonic)
    high = line.at_most(total if otherwise else most)
    for factor, blocks in _by_duplication(group):
        if factor == 1:
            yield from _each(blocks, least, high)
        else:
            yield _unrolled(blocks, factor, otherwise, least, high, VAGUE)


def _each(blocks: Sequence[int], low: float, high: float) -> Iterator[Observation]:
    for block in blocks:
        yield Observation((block,), low, high, VAGUE)


def _unrolled(
    blocks: Sequence[int], factor: int, otherwise: bool, low: float, high: float, weight: float
) -> Observation:
    """The copies of an unrolled line share its executions, evenly or not.

    Args:
      otherwise: the profiled binary unrolled otherwise, so that the last round may be part of one.
      low, high: bounds of the line's executions.
    """
    whole = len(blocks) / factor
    most = len(blocks) if otherwise else whole
    return Observation(tuple(blocks), whole * low, most * high, weight / len(blocks))


def _by_duplication(group: Sequence[Instruction]) -> Iterable[tuple[int, list[int]]]:
    """The blocks of the instructions, by the instructions' duplication."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for instruction in group:
        found[duplication(instruction)].append(instruction.block)
    return found.items()


def all_copies(copies: Copies) -> list[Copy]:
    """All instructions of a line, whatever their mnemonic."""
    return [copy for group in copies.values() for copy in group]


def executions(copies: Sequence[Copy]) -> list[float]:
    """How often a line ran, by each of its instructions that may have run apart."""
    plain, unrolled = rounds(copies)
    return plain + unrolled


def rounds(copies: Sequence[Copy]) -> tuple[list[float], list[float]]:
    """How often a line ran, by its plain instructions and by those of unrolled loops.

    Instructions of one block ran together. The copies that unrolling made share the line's
    executions: evenly, or not when a loop of few rounds is unrolled as a whole.
    """
    plain = {copy.block: copy.executions for copy in copies if copy.duplication == 1}
    unrolled: dict[int, list[float]] = {}
    for copy in copies:
        if copy.duplication > 1:
            unrolled.setdefault(copy.duplication, []).append(copy.executions)
    return list(plain.values()), [
        factor * sum(each) / len(each) for factor, each in unrolled.items()
    ]
