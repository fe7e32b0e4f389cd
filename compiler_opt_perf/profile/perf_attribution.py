# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts perf's samples to counts at the instructions of one binary.

Samples of an imprecise event arrive some instructions late (skid). They are shared among the
instructions of the basic block that can cause the event.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from absl import logging

from compiler_opt_perf.binary.disassembly import Disassembly, Kind
from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import EVENTS, Cause, Event, event_named
from compiler_opt_perf.profile.perf_branches import LONGEST_RANGE, BranchCounts, count_branches
from compiler_opt_perf.profile.perf_script import Script
from compiler_opt_perf.profile.perf_stacks import Stacks


def count(script: Script, code: Disassembly) -> Counts:
    """Counts the recorded events of `EVENTS` at the binary's instructions.

    Each event has several possible sources (`Event.perf`); the first recorded one is used. Without
    branch stacks, executions are the samples of "instructions", spread over basic blocks.

    Raises:
      PmuError: the recording has none of the events, or no sample in the binary.
    """
    _require_samples(script)
    branches = count_branches(script, code)
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
            f"the recording holds {', '.join(sorted(script.periods))}, but no event that PMU "
            f"profiles use; {_REMEDY}"
        )
    if script.unknown:
        logging.warning(
            "unknown event %s: it is left out, with its branch stacks; %s",
            ", ".join(sorted(script.unknown)),
            _REMEDY,
        )
    by_address: dict[int, list[int]] = defaultdict(lambda: [0] * len(columns))
    for number, column in enumerate(columns):
        for address, value in column.counts.items():
            if round(value):
                by_address[address][number] = round(value)
    return Counts(
        tuple(column.event for column in columns),
        dict(by_address),
        [round(column.outside) for column in columns],
        {edge: round(value) for edge, value in branches.calls.items() if round(value)},
        [column.period for column in columns],
        [column.precise for column in columns],
        sampled=True,
    )


_REMEDY = (
    "docs/collect-in-hardware.md lists the events to record; if you record an event by its code, "
    "name it: perf record -e cpu/event=0xc4,umask=0x20,name=br_inst_retired.near_taken/"
)


def _require_samples(script: Script) -> None:
    """Raises PmuError: no sample is in the binary; the message says where the samples are."""
    if not script.periods:
        raise PmuError(
            f"the recording has no samples (it maps {script.program}, but has nothing else); let "
            "the program run longer, or record with a shorter period"
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
                f"mapped over {script.program}'s code while it ran (text on huge pages?); record a "
                "run that does not remap its code"
            )
        raise PmuError(
            f"none of the recording's {number} samples is in {script.program}: they are in "
            "libraries, the kernel or other programs; name the executed file with --binary, or "
            f"record a run that spends its time in {script.program}"
        )
    if hidden:
        logging.warning(
            "%.1f%% of the samples are in %s, which the program mapped over a part of its code "
            "(text on huge pages?); they are left out",
            100 * hidden / number,
            where,
        )


@dataclass(frozen=True)
class _Column:
    """The counts of one event, by address."""

    event: Event
    counts: Mapping[int, float]
    outside: float
    period: int
    precise: bool


def _column(
    event: Event, script: Script, code: Disassembly, branches: BranchCounts
) -> _Column | None:
    """The counts of one event; None if it was not recorded."""
    for source, what in event.perf.items():
        if source == "ibs":
            if "ibs_op" in script.periods:
                # Samples in other code have no operation, so nothing is counted outside.
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


def _from_branches(event: Event, what: str, code: Disassembly, branches: BranchCounts) -> _Column:
    """The counts of an event whose source is branch stacks; `what` is `Event.perf["branches"]`."""
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
    """The counts of an event that was sampled as perf event `name`."""
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
    """Shares samples equally among the instructions of the basic block that can cause the event.

    Skid moves a sample some instructions on, so only its basic block is trusted. A block without
    an instruction of the cause shares its samples among all of its instructions.
    """
    result: dict[int, float] = defaultdict(float)
    for address, value in counts.items():
        index = code.containing(address)
        if index is None:
            continue
        members = code.members(index)
        causes = [m for m in members if cause in _KINDS and code.kinds[m] & _KINDS[cause]]
        for member in causes or members:
            result[code.addresses[member]] += value / len(causes or members)
    return result


def _last_branches(stacks: Stacks, code: Disassembly, cause: Cause) -> dict[int, float]:
    """Gives each sample to the last executed branch of the kind `cause`.

    This is the last untaken branch after the newest branch of the stack; otherwise it is that
    newest branch. If neither is of the kind, the sample is spread over its basic block.
    """
    result: dict[int, float] = defaultdict(float)
    unexplained: Counter[int] = Counter()
    for (address, source, target), period in stacks.newest.items():
        if address is None:
            continue
        first = code.index(target) if target is not None else None
        last = code.containing(address)
        passed: Sequence[int] = ()
        if first is not None and last is not None and last - first < LONGEST_RANGE:
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
