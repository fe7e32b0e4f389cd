# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branch stacks in the output of `perf script`."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.perf_mappings import Mappings


@dataclass(frozen=True)
class StackBranch:
    """A branch record of a branch stack.

    Attributes:
      source, target: link-time addresses; None in other code.
      mispredicted: whether it was mispredicted; None if the processor does not record it.
      cycles: cycles since the branch before; 0 if the processor does not count them.
      taken: whether it was taken; newer processors can record untaken branches.
    """

    source: int | None
    target: int | None
    mispredicted: bool | None
    cycles: int
    taken: bool = True


@dataclass
class Stacks:
    """The branch stacks of one perf event, added up by address to save memory.

    A stack of n taken branches, sampled at period p, adds a weight of p / n per branch, and of
    p / (n - 1) per range between two successive branches. Weights are occurrences of the event.

    Attributes:
      number: number of stacks.
      branches: (source, target, mispredicted) of a taken branch -> weight.
      not_taken: source of a mispredicted branch that was not taken -> weight.
      predicted: whether any branch records if it was mispredicted.
      ranges: (older branch's target, newer branch's source) -> (weight, weight times cycles).
      newest: (address of the sample, source and target of the newest taken branch) -> sum of
        periods.
    """

    number: int = 0
    branches: dict[tuple[int | None, int | None, bool], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    not_taken: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    predicted: bool = False
    ranges: dict[tuple[int | None, int | None], tuple[float, float]] = field(default_factory=dict)
    newest: Counter[tuple[int | None, int | None, int | None]] = field(default_factory=Counter)

    def add(self, address: int | None, period: int, branches: Sequence[StackBranch]) -> None:
        """Adds the stack of a sample at `address`, newest branch first."""
        taken = [branch for branch in branches if branch.taken]
        if not taken:
            return
        self.number += 1
        self.newest[address, taken[0].source, taken[0].target] += period
        for branch in branches:
            self.predicted = self.predicted or branch.mispredicted is not None
            if branch.taken:
                place = branch.source, branch.target, bool(branch.mispredicted)
                self.branches[place] += period / len(taken)
            elif branch.mispredicted and branch.source is not None:
                self.not_taken[branch.source] += period / len(taken)
        for newer, older in itertools.pairwise(taken):
            ends = older.target, newer.source
            weight = period / (len(taken) - 1)
            executions, cycles = self.ranges.get(ends, (0.0, 0.0))
            self.ranges[ends] = executions + weight, cycles + weight * newer.cycles


def read_stack(text: str, pid: int, mappings: Mappings, place: str) -> list[StackBranch]:
    """Parses a branch stack: "source/target/flags/..." for each branch; may be empty."""
    branches = []
    previous: tuple[int, int] | None = None
    try:
        for entry in text.split():
            from_text, to_text, flags, *rest = entry.split("/")
            source, target = int(from_text, 16), int(to_text, 16)
            # A branch on a wrong speculative path was not executed.
            if "SPEC_WRONG_PATH" in rest:
                continue
            # Some processors record the newest branch twice. Only a backward branch can follow
            # itself.
            if (source, target) == previous and target > source:
                continue
            previous = source, target
            branches.append(
                StackBranch(
                    mappings.link_time(pid, source),
                    mappings.link_time(pid, target),
                    # Newer versions of perf print several flags.
                    "M" in flags if set("MP") & set(flags) else None,
                    cycles=int(rest[2]) if len(rest) > 2 and rest[2].isdigit() else 0,
                    taken="N" not in flags,
                )
            )
    except ValueError as error:
        raise PmuError(
            f"{place}: not a branch stack: {text.strip()[:80]!r}; "
            "make it with perf script -F +brstack"
        ) from error
    return branches
