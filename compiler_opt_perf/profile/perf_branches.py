# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Estimates executions, mispredicts and calls from branch stacks.

A branch stack holds the last taken branches before a sample. The code between two of them was
executed, which gives the execution count of each instruction.
"""

import itertools
from collections import defaultdict
from dataclasses import dataclass, field

from absl import logging

from compiler_opt_perf.binary.disassembly import Disassembly, Kind
from compiler_opt_perf.profile.events import EVENTS
from compiler_opt_perf.profile.perf_event_table import UNITS, Unit, unit_of
from compiler_opt_perf.profile.perf_script import Script
from compiler_opt_perf.profile.perf_stacks import Stacks

# Events that no rate uses.
_TIMES = {"cpu-clock"}
# The most instructions in a range between two branches; a longer one misses branches.
LONGEST_RANGE = 1 << 16


@dataclass
class BranchCounts:
    """Counts that are estimated from branch stacks.

    Attributes:
      executions: [N], for each instruction of the disassembly.
      mispredicts: address of a conditional branch -> mispredicts.
      indirect_mispredicts: address of an indirect branch -> mispredicts.
      calls: (address of the call, address of the callee) -> number of calls; the caller is None
        in other code.
      period: occurrences of the sampled event between two stacks; 0 without stacks.
      predicted: whether the stacks record mispredicts.
      outside: executed ranges in other code, per range in the binary.
    """

    executions: list[float]
    mispredicts: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    indirect_mispredicts: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[tuple[int | None, int], float] = field(default_factory=lambda: defaultdict(float))
    period: int = 0
    predicted: bool = False
    outside: float = 0.0


def count_branches(script: Script, code: Disassembly) -> BranchCounts:
    """Estimates executions, mispredicts and calls from branch stacks.

    The code from the older branch's target to the newer branch's source was executed once. The
    stacks of each sampled event estimate the whole run, so only the best event's stacks are used.
    """
    # `unit_of` leaves out events such as mispredicts, whose stacks show a biased part of the run.
    events = [(UNITS.index(unit), name) for name in script.stacks if (unit := unit_of(name))]
    events.sort(key=lambda event: (event[0], -script.stacks[event[1]].number))
    for place, name in events:
        found = _from_stacks(name, UNITS[place], script, code)
        if found is not None:
            return found
    # `_last_branches` uses the stacks of mispredict events.
    used = {
        name
        for event in EVENTS
        if event.caused_by in ("conditional", "indirect")
        for names in event.perf.values()
        for name in names.split("|")
    }
    left_out = (script.filtered & script.periods.keys()) | (
        script.stacks.keys() - used - script.unknown
    )
    if left_out and not events:
        logging.warning(
            "the branch stacks of %s do not give execution counts%s; record branch stacks of taken "
            "branches (docs/collect-in-hardware.md)",
            ", ".join(sorted(left_out)),
            ": they hold only some kinds of branches" if script.filtered else "",
        )
    return BranchCounts([0.0] * len(code.addresses))


def _from_stacks(event: str, unit: Unit, script: Script, code: Disassembly) -> BranchCounts | None:
    """The counts from one event's branch stacks; None if no stack is in the binary."""
    stacks = script.stacks[event]
    ranges = _Ranges.from_stacks(stacks, code, unit)
    if unit == "cycles" and ranges.inside and not ranges.occurrences:
        # AMD up to Zen 5 and Intel before Skylake do not count cycles between branches.
        counted = {name for name in script.periods if unit_of(name) in (None, "instructions")}
        others = sorted(counted - _TIMES - script.unknown)
        if others:
            logging.warning(
                "branch stacks of %s have no cycle counts on this processor, so their executions "
                "cannot be scaled to match %s: they are left out; record branch stacks of taken "
                "branches (docs/collect-in-hardware.md)",
                event,
                ", ".join(others),
            )
            return None
        logging.warning(
            "branch stacks of %s have no cycle counts on this processor: executions are right "
            "relative to each other only, as if each instruction took a cycle; record branch "
            "stacks of taken branches (docs/collect-in-hardware.md) for absolute numbers",
            event,
        )
        ranges = _Ranges.from_stacks(stacks, code, "instructions")
    if ranges.broken:
        everything = ranges.broken + ranges.inside + ranges.outside
        logging.warning(
            "%.2f%% of the executed ranges in branch stacks are impossible and are left out (the "
            "code changed at run time, or this is another binary)",
            100 * ranges.broken / everything,
        )
    if not ranges.inside or not ranges.occurrences:
        return None
    # Executed ranges per occurrence of the sampled event.
    scale = ranges.inside / ranges.occurrences
    found = BranchCounts(
        # Sums that should cancel leave rounding errors.
        [value * scale if value * scale > 1e-6 else 0.0 for value in ranges.executions()],
        period=script.period(event),
        predicted=stacks.predicted,
        outside=ranges.outside / ranges.inside,
    )
    for (source, target, mispredicted), weight in stacks.branches.items():
        index = code.index(source) if source is not None else None
        kind = code.kinds[index] if index is not None else Kind(0)
        if mispredicted and source is not None:
            if kind & Kind.CONDITIONAL:
                found.mispredicts[source] += weight * scale
            elif kind & Kind.INDIRECT:
                found.indirect_mispredicts[source] += weight * scale
        # An unconditional jump to an entry is a tail call; a conditional one is a loop.
        if target is not None and not kind & Kind.CONDITIONAL:
            found.calls[source, target] += weight * scale
    for source, weight in stacks.not_taken.items():
        found.mispredicts[source] += weight * scale
    return found


@dataclass
class _Ranges:
    """Executed ranges: the code between two successive branches of a stack.

    All numbers are weighted with occurrences of the sampled event.

    Attributes:
      edges: [N + 1], the difference in executions between an instruction and the one before.
      inside: number of ranges in the binary.
      outside: number of ranges with an end in other code.
      broken: number of ranges whose ends are no instructions, or in the wrong order.
      occurrences: occurrences of the sampled event in all ranges in the binary.
    """

    edges: list[float]
    inside: float = 0.0
    outside: float = 0.0
    broken: float = 0.0
    occurrences: float = 0.0

    @classmethod
    def from_stacks(cls, stacks: Stacks, code: Disassembly, unit: Unit) -> "_Ranges":
        """Adds up the ranges of all stacks.

        Args:
          stacks: the branch stacks of one perf event.
          code: the binary's instructions.
          unit: the unit that the sampled event counts.
        """
        branches = (bool(kind & Kind.BRANCH) for kind in code.kinds)
        before = list(itertools.accumulate(branches, initial=0))
        found = cls([0.0] * (len(code.addresses) + 1))
        for (start, end), (weight, cycles) in stacks.ranges.items():
            if start is None or end is None:
                found.outside += weight
                continue
            first, last = code.index(start), code.index(end)
            if first is None or last is None or not 0 <= last - first < LONGEST_RANGE:
                found.broken += weight
                continue
            found.inside += weight
            found.edges[first] += weight
            found.edges[last + 1] -= weight
            found.occurrences += {
                "taken branches": weight,
                "branches": weight * (before[last + 1] - before[first]),
                "instructions": weight * (last + 1 - first),
                "cycles": cycles,
            }[unit]
        return found

    def executions(self) -> list[float]:
        """[N], the executions of each instruction."""
        return list(itertools.accumulate(self.edges))[:-1]
