# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From perf's samples to counts at the instructions of one binary.

An event that is not precise is reported some instructions late ("skid"), and is given to those
instructions of its basic block that can have caused it. Branch stacks say which code was executed
between two of their branches, and thereby how often each instruction was.
"""

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from absl import logging

from compiler_opt_perf.binary.disassembly import Disassembly, Kind
from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import EVENTS, Cause, Event, event_named
from compiler_opt_perf.profile.perf_events import UNITS, Unit, unit_of
from compiler_opt_perf.profile.perf_script import Script, Stacks

# Events that no rate is made of.
_TIMES = {"cpu-clock"}
# Branches of one executed range; a longer one is two that the kernel glued together.
_LONGEST_RANGE = 1 << 16


@dataclass
class _Branches:
    """What branch stacks say of a run.

    Attributes:
      executions: of each instruction, by its number in the disassembly.
      mispredicts: of taken conditional branches, by address.
      indirect_mispredicts: of indirect branches, by address.
      calls: by addresses of caller (None in other code) and callee.
      period: branches between two stacks; 0 when there are no stacks.
      predicted: whether the stacks say which branches were mispredicted.
      outside: how many executed ranges in other code come on one in the binary.
    """

    executions: list[float]
    mispredicts: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    indirect_mispredicts: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[tuple[int | None, int], float] = field(default_factory=lambda: defaultdict(float))
    period: int = 0
    predicted: bool = False
    outside: float = 0.0


def count(script: Script, code: Disassembly) -> Counts:
    """Counts of all of `EVENTS` that the recording has, at the binary's instructions.

    An event is taken from the first of its sources (`Event.perf`) that was recorded. Executions
    without branch stacks are those of the instructions, which are then spread over their blocks.

    Raises:
      PmuError: the recording has none of them, or nothing of the binary.
    """
    _require_samples(script)
    branches = _count_branches(script, code)
    columns = []
    for event in EVENTS:
        column = _column(event, script, code, branches)
        if column is not None:
            columns.append(column)
    names = [column.event.name for column in columns]
    if "instructions" in names and "executions" not in names:
        instructions = columns[names.index("instructions")]
        columns.insert(0, dataclasses.replace(instructions, event=event_named("executions")))
    if not columns:
        raise PmuError(
            f"the recording holds {', '.join(sorted(script.periods))}, which are no events of PMU "
            f"profiles, or are not known to be; {_REMEDY}"
        )
    if script.unknown:
        logging.warning(
            "what %s counts is not known: it is left out, and so are its branch stacks; %s",
            ", ".join(sorted(script.unknown)),
            _REMEDY,
        )
    at: dict[int, list[int]] = defaultdict(lambda: [0] * len(columns))
    for number, column in enumerate(columns):
        for address, value in column.counts.items():
            if round(value):
                at[address][number] = round(value)
    return Counts(
        tuple(column.event for column in columns),
        dict(at),
        [round(column.outside) for column in columns],
        {edge: round(value) for edge, value in branches.calls.items() if round(value)},
        [column.period for column in columns],
        [column.precise for column in columns],
        sampled=True,
    )


_REMEDY = (
    "docs/collect-in-hardware.md lists events to record; of another event, say what it is by the "
    "name: perf record -e cpu/event=0xc4,umask=0x20,name=br_inst_retired.near_taken/"
)


def _require_samples(script: Script) -> None:
    """Checks that something is in the binary. Raises PmuError, which says what there is instead."""
    if not script.periods:
        raise PmuError(
            f"the recording has no samples (it knows where {script.program} was in memory, nothing "
            "else); let the program run longer, or record with a shorter period"
        )
    hidden = sum(script.hidden.values())
    number = sum(samples for samples, _ in script.periods.values())
    where = ", ".join(sorted(script.hidden))
    if not any(script.samples.values()) and not any(
        place != (None, None) for stacks in script.stacks.values() for place in stacks.ranges
    ):
        if hidden:
            raise PmuError(
                f"{hidden} of the recording's {number} samples are in {where}, which the program "
                f"put in the place of {script.program}'s code while it ran (text on huge pages?); "
                "record a run in which it leaves its code where it is"
            )
        raise PmuError(
            f"none of the recording's {number} samples is in {script.program}: they are in "
            "libraries, the kernel or other programs; name the file that has the code with "
            "--binary, or record a run that spends its time there"
        )
    if hidden:
        logging.warning(
            "%.1f%% of the samples are in %s, which the program put in the place of a part of its "
            "code (text on huge pages?); they are left out",
            100 * hidden / number,
            where,
        )


@dataclass(frozen=True)
class _Column:
    """The counts of one event."""

    event: Event
    counts: Mapping[int, float]
    outside: float
    period: int
    precise: bool


def _column(event: Event, script: Script, code: Disassembly, branches: _Branches) -> _Column | None:
    """The counts of one event; None when the recording does not have it."""
    for source, what in event.perf.items():
        if source == "ibs":
            if "ibs_op" in script.periods:
                # Of samples in other code nothing but their number is known.
                sampled = script.memory["ibs_op"][what]
                return _Column(event, sampled, 0, script.period("ibs_op"), True)
        elif source == "branches":
            if branches.period and (branches.predicted or "mispredicts" not in what):
                return _from_branches(event, what, code, branches)
        else:
            for name in what.split("|"):
                if name in script.periods and source in ("latency", "timed"):
                    loads = script.memory[name][source]
                    return _Column(event, loads, 0, script.period(name), script.precise[name])
                if name in script.periods:
                    return _sampled(event, name, script, code)
    return None


def _from_branches(event: Event, what: str, code: Disassembly, branches: _Branches) -> _Column:
    """The counts of an event that branch stacks have."""
    kinds = {"conditional": Kind.CONDITIONAL, "indirect": Kind.INDIRECT}
    counts: Mapping[int, float]
    if what == "mispredicts":
        counts = branches.mispredicts
    elif what == "indirect mispredicts":
        counts = branches.indirect_mispredicts
    else:
        counts = {
            address: executed
            for address, kind, executed in zip(
                code.addresses, code.kinds, branches.executions, strict=True
            )
            if executed and (what not in kinds or kind & kinds[what])
        }
    outside = sum(counts.values()) * branches.outside
    return _Column(event, counts, outside, branches.period, True)


def _sampled(event: Event, name: str, script: Script, code: Disassembly) -> _Column:
    """The counts of an event that has a perf event of its own."""
    counts: Mapping[int, float] = script.samples[name]
    precise = script.precise[name]
    if not precise:
        if event.caused_by in ("conditional", "indirect") and name in script.stacks:
            counts = _last_branches(script.stacks[name], code, event.caused_by)
        else:
            counts = spread(counts, code, event.caused_by)
    return _Column(event, counts, script.outside[name], script.period(name), precise)


_KINDS: dict[Cause, Kind] = {
    "load": Kind.LOAD,
    "store": Kind.STORE,
    "conditional": Kind.CONDITIONAL,
    "indirect": Kind.INDIRECT,
}


def spread(counts: Mapping[int, float], code: Disassembly, cause: Cause) -> dict[int, float]:
    """Gives each sample to those instructions of its block that can have caused it, in equal parts.

    An event that is not precise is reported some instructions late ("skid"), so that only the
    block is known. A block without such an instruction shares the count among all of its own.
    """
    result: dict[int, float] = defaultdict(float)
    for address, value in counts.items():
        index = code.containing(address)
        if index is None:
            continue
        members = code.members(index)
        able = [m for m in members if cause in _KINDS and code.kinds[m] & _KINDS[cause]] or members
        for member in able:
            result[code.addresses[member]] += value / len(able)
    return result


def _last_branches(stacks: Stacks, code: Disassembly, cause: Cause) -> dict[int, float]:
    """Gives each sample to the last branch of a kind that was executed before it.

    That is one that was not taken since the last taken branch, or else that taken branch itself. A
    sample that neither explains is spread over its block.
    """
    result: dict[int, float] = defaultdict(float)
    unexplained: Counter[int] = Counter()
    for (address, source, target), period in stacks.newest.items():
        if address is None:
            continue
        first = code.index(target) if target is not None else None
        last = code.containing(address)
        passed: Sequence[int] = ()
        if first is not None and last is not None and last - first < _LONGEST_RANGE:
            passed = [i for i in range(first, last) if code.kinds[i] & _KINDS[cause]]
        taken = code.index(source) if source is not None else None
        if passed:
            result[code.addresses[passed[-1]]] += period
        elif taken is not None and code.kinds[taken] & _KINDS[cause]:
            result[code.addresses[taken]] += period
        else:
            unexplained[address] += period
    for address, value in spread(unexplained, code, cause).items():
        result[address] += value
    return result


def _count_branches(script: Script, code: Disassembly) -> _Branches:
    """Executions, mispredicts and calls from branch stacks.

    Between two branches of a stack the code from the older one's target to the newer one's source
    was executed once. Each event that was sampled with stacks estimates the whole run: the best one
    is taken, and the others are not added to it.
    """
    # Stacks that were taken where branches were mispredicted show too little of the rest.
    events = [(UNITS.index(unit), name) for name in script.stacks if (unit := unit_of(name))]
    events.sort(key=lambda event: (event[0], -script.stacks[event[1]].number))
    for place, name in events:
        found = _from_stacks(name, UNITS[place], script, code)
        if found is not None:
            return found
    # Those of mispredicts say which branch it was (`_last_branches`).
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
            "the branch stacks of %s say nothing of how often code was executed%s; record those of "
            "taken branches (docs/collect-in-hardware.md)",
            ", ".join(sorted(left_out)),
            ": they hold only some kinds of branches" if script.filtered else "",
        )
    return _Branches([0.0] * len(code.addresses))


def _from_stacks(event: str, unit: Unit, script: Script, code: Disassembly) -> _Branches | None:
    """What the stacks of one event say; None when nothing of this binary."""
    stacks = script.stacks[event]
    ranges = _Ranges.of(stacks, code, unit)
    if unit == "cycles" and ranges.inside and not ranges.occurrences:
        # AMD up to Zen 5 and Intel before Skylake do not count the cycles between two branches.
        counted = {name for name in script.periods if unit_of(name) in (None, "instructions")}
        others = sorted(counted - _TIMES - script.unknown)
        if others:
            logging.warning(
                "branch stacks of %s have no cycle counts on this processor, so nothing tells how "
                "many executions they stand for beside %s: they are left out; record stacks of "
                "taken branches (docs/collect-in-hardware.md)",
                event,
                ", ".join(others),
            )
            return None
        logging.warning(
            "branch stacks of %s have no cycle counts on this processor: executions are right in "
            "proportion to each other alone, as if each instruction took a cycle; record stacks of "
            "taken branches (docs/collect-in-hardware.md) to know how many there were",
            event,
        )
        ranges = _Ranges.of(stacks, code, "instructions")
    if ranges.broken:
        everything = ranges.broken + ranges.inside + ranges.outside
        logging.warning(
            "%.2f%% of the executed ranges of branch stacks make no sense and are left out (code "
            "changed while it ran, or the binary is another)",
            100 * ranges.broken / everything,
        )
    if not ranges.inside or not ranges.occurrences:
        return None
    # From occurrences of the sampling event to executed ranges.
    scale = ranges.inside / ranges.occurrences
    found = _Branches(
        # Sums of parts that cancel leave a rest.
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
        # A jump may be a call in tail position; a conditional one back to the function's first
        # instruction is a loop.
        if target is not None and not kind & Kind.CONDITIONAL:
            found.calls[source, target] += weight * scale
    for source, weight in stacks.not_taken.items():
        found.mispredicts[source] += weight * scale
    return found


@dataclass
class _Ranges:
    """The code between two branches of a stack each, in occurrences of the sampling event.

    Attributes:
      edges: [N + 1] by how much executions of an instruction are more than of the one before.
      inside: ranges in the binary.
      outside: ranges with an end in other code.
      broken: ranges that do not begin and end at instructions, or not in order.
      occurrences: how often the sampling event occurs in all ranges in the binary.
    """

    edges: list[float]
    inside: float = 0.0
    outside: float = 0.0
    broken: float = 0.0
    occurrences: float = 0.0

    @classmethod
    def of(cls, stacks: Stacks, code: Disassembly, unit: Unit) -> "_Ranges":
        """Adds up the ranges of all stacks.

        Args:
          unit: what the sampling event is an occurrence of.
        """
        branches = (bool(kind & Kind.BRANCH) for kind in code.kinds)
        before = list(itertools.accumulate(branches, initial=0))
        found = cls([0.0] * (len(code.addresses) + 1))
        for (start, end), (weight, cycles) in stacks.ranges.items():
            if start is None or end is None:
                found.outside += weight
                continue
            first, last = code.index(start), code.index(end)
            if first is None or last is None or not 0 <= last - first < _LONGEST_RANGE:
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
        """[N] of each instruction."""
        return list(itertools.accumulate(self.edges))[:-1]
