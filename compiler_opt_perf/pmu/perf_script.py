# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads what `perf script` prints, and counts events at the instructions of one binary."""

import dataclasses
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from absl import logging

from compiler_opt_perf.pmu.binary import open_elf
from compiler_opt_perf.pmu.counts import Counts
from compiler_opt_perf.pmu.disassembly import Disassembly, Kind
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.events import EVENTS, Cause, Event, event_named

# What the reader needs; data source, weight (a load's latency) and branch stack where they were
# recorded.
FIELDS = ("pid", "event", "ip", "period")
OPTIONAL_FIELDS = ("data_src", "weight", "brstack")

_MMAP = re.compile(
    r"PERF_RECORD_MMAP2? (-?\d+)/-?\d+: "
    r"\[0x([0-9a-f]+)\(0x([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+)[^\]]*\]: (\S+) (.*)$"
)
_FORK = re.compile(r"PERF_RECORD_FORK\((\d+):\d+\):\((\d+):\d+\)")
_EXEC = re.compile(r"PERF_RECORD_COMM exec: .*:(\d+)/\d+$")
_SAMPLE = re.compile(
    r"^\s*(?P<pid>-?\d+)(?:/-?\d+)?\s+(?P<period>\d+)\s+(?P<event>\S+):\s+"
    r"(?:[0-9a-f]+\s+(?P<source>\|.*?)\s+)?"
    r"(?:(?P<weight>\d+)\s+)?"
    r"(?P<ip>[0-9a-f]+)"
    r"(?P<stack>(?:\s+0x[0-9a-f]+/0x[0-9a-f]+/\S*)*)\s*$"
)
# Branches of one executed range; a longer one is two that the kernel glued together.
_LONGEST_RANGE = 1 << 16


class Branch:
    """One entry of a branch stack."""

    __slots__ = ("cycles", "mispredicted", "source", "target")

    def __init__(self, text: str):
        source, target, flags, *rest = text.split("/")
        self.source = int(source, 16)
        self.target = int(target, 16)
        # Newer versions of perf may print several letters.
        self.mispredicted = "M" in flags
        self.cycles = int(rest[2]) if len(rest) > 2 and rest[2].isdigit() else 0


@dataclass(frozen=True)
class Hop:
    """A taken branch of a stack; an end in other code is None."""

    source: int | None
    target: int | None
    mispredicted: bool
    cycles: int


@dataclass
class Stacks:
    """The branch stacks of one perf event, added up: a recording has many more than code branches.

    Attributes:
      number: of stacks.
      branches: by source, target and whether it was mispredicted, occurrences of the event that
        such branches of stacks stand for. A stack of n branches that was taken once a period
        stands for period / n of each.
      ranges: by the older branch's target and the newer one's source, the same of stretches
        between two branches of a stack, of which it has n - 1; and their cycles, multiplied.
      newest: by the address of the sample and the ends of the last branch before it, the sum of
        the periods.
    """

    number: int = 0
    branches: dict[tuple[int | None, int | None, bool], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    ranges: dict[tuple[int | None, int | None], tuple[float, float]] = field(default_factory=dict)
    newest: Counter[tuple[int | None, int | None, int | None]] = field(default_factory=Counter)

    def add(self, address: int | None, period: int, hops: Sequence[Hop]) -> None:
        """Adds a stack, its newest branch first, of a sample at `address`."""
        self.number += 1
        self.newest[address, hops[0].source, hops[0].target] += period
        for hop in hops:
            self.branches[hop.source, hop.target, hop.mispredicted] += period / len(hops)
        for newer, older in itertools.pairwise(hops):
            place = older.target, newer.source
            weight = period / (len(hops) - 1)
            executions, cycles = self.ranges.get(place, (0.0, 0.0))
            self.ranges[place] = executions + weight, cycles + weight * newer.cycles


@dataclass
class Script:
    """The samples of one recording that fell into one binary; addresses are link-time addresses.

    Attributes:
      samples: for each perf event, without its modifiers, the summed periods by address.
      outside: for each perf event, the summed periods of all other code.
      periods: for each perf event, how many samples it has, and the sum of their periods.
      precise: for each perf event, whether it was recorded with a precise modifier (p).
      stacks: for each perf event, its branch stacks.
      memory: for each perf event, the summed periods by address of samples that were a "load", an
        "l1 miss", an "llc miss", a "store", by their data source; as "latency", periods times
        weight of the loads, and as "timed", periods of those loads that have a weight.
      lost: samples that perf says were lost.
    """

    samples: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    outside: Counter[str] = field(default_factory=Counter)
    periods: dict[str, tuple[int, int]] = field(default_factory=dict)
    precise: dict[str, bool] = field(default_factory=dict)
    stacks: dict[str, Stacks] = field(default_factory=lambda: defaultdict(Stacks))
    memory: dict[str, dict[str, Counter[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )
    lost: int = 0

    def period(self, event: str) -> int:
        """Occurrences between two samples of a perf event, on average.

        A recording at a given frequency has another period at each sample.
        """
        samples, occurrences = self.periods[event]
        return max(1, round(occurrences / samples))


class Mappings:
    """Where the processes of a recording had the binary in memory."""

    def __init__(self, binary: Path, recorded_name: str):
        self._name = recorded_name
        self._by_process: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self.seen: set[str] = set()
        with open_elf(binary) as file:
            self._segments = [
                (segment["p_offset"], segment["p_filesz"], segment["p_vaddr"])
                for segment in file.iter_segments("PT_LOAD")
            ]

    def add(self, pid: int, start: int, size: int, offset: int, name: str) -> None:
        """The process maps a part of a file."""
        self.seen.add(name)
        # Newest first: what is mapped over an older mapping hides it.
        known = self._by_process[pid]
        if Path(name).name == self._name:
            known.insert(0, (start, start + size, offset))
        else:
            known[:] = [m for m in known if m[1] <= start or m[0] >= start + size]

    def fork(self, child: int, parent: int) -> None:
        """The child has its parent's mappings."""
        if child != parent:
            self._by_process[child] = list(self._by_process[parent])

    def forget(self, pid: int) -> None:
        """The process runs another program from here on."""
        self._by_process.pop(pid, None)

    def link_time(self, pid: int, address: int) -> int | None:
        """The address in the binary; None outside it."""
        for start, end, offset in self._by_process.get(pid, ()):
            if start <= address < end:
                place = address - start + offset
                for segment_offset, size, virtual in self._segments:
                    if segment_offset <= place < segment_offset + size:
                        return int(place - segment_offset + virtual)
        return None


def base_name(event: str) -> str:
    """A perf event's name without PMU, terms and modifiers.

    "cpu/mem_load_retired.l3_miss,period=1009/ppu" and "mem_load_retired.l3_miss:upp" are the same.
    """
    pmu, slash, rest = event.partition("/")
    if slash and not event.startswith("0x"):
        terms = rest.rpartition("/")[0].split(",")
        named = [term for term in terms if term and "=" not in term]
        return named[0] if named else pmu
    return event.partition(":")[0]


def _is_precise(event: str) -> bool:
    modifiers = event.rpartition("/" if "/" in event else ":")[2]
    return (("/" in event or ":" in event) and "p" in modifiers) or event.startswith("ibs_")


def read_script(
    lines: Iterable[str],
    binary: Path,
    origin: str,
    on_stack: Callable[[str, list[Hop]], None] | None = None,
) -> Script:
    """Reads the output of `perf script --show-mmap-events --show-task-events -F ...`.

    Args:
      lines: the output; the fields are `FIELDS` and any of `OPTIONAL_FIELDS`.
      binary: whose instructions are wanted; in the recording it may have been in another folder.
      origin: what to call the output in messages.
      on_stack: called with each branch stack, its newest branch first, and its event.

    Raises:
      PmuError: a line is neither a sample nor an event, or the binary was never mapped.
    """
    mappings = Mappings(binary, binary.name)
    script = Script()
    number = 0
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            raise PmuError(
                f"{origin}:{number}: the last line is not complete: it is truncated (disk full?); "
                "make the text again with perf script"
            )
        found = _SAMPLE.match(line)
        if found is None:
            read_event(line, mappings, script, f"{origin}:{number}")
            continue
        pid, period = int(found["pid"]), int(found["period"])
        event = base_name(found["event"])
        script.precise[event] = _is_precise(found["event"])
        samples, occurrences = script.periods.get(event, (0, 0))
        script.periods[event] = samples + 1, occurrences + period
        address = mappings.link_time(pid, int(found["ip"], 16))
        if address is None:
            script.outside[event] += period
        else:
            script.samples[event][address] += period
            kinds = _memory(found["source"]) if found["source"] else []
            for what in kinds:
                script.memory[event][what][address] += period
            weight = int(found["weight"] or 0)
            if weight and ("load" in kinds or not found["source"]):
                script.memory[event]["latency"][address] += period * weight
                script.memory[event]["timed"][address] += period
        if found["stack"].strip():
            hops = []
            try:
                for entry in found["stack"].split():
                    branch = Branch(entry)
                    hops.append(
                        Hop(
                            mappings.link_time(pid, branch.source),
                            mappings.link_time(pid, branch.target),
                            branch.mispredicted,
                            branch.cycles,
                        )
                    )
            except ValueError as error:
                raise PmuError(
                    f"{origin}:{number}: not a branch stack: {found['stack'].strip()[:80]!r}; "
                    "make it with perf script -F +brstack"
                ) from error
            script.stacks[event].add(address, period, hops)
            if on_stack is not None:
                on_stack(event, hops)
    if not number:
        raise PmuError(f"{origin}: empty; was anything recorded?")
    if not any(Path(name).name == binary.name for name in mappings.seen):
        raise PmuError(
            f"{origin}: {binary.name} was never mapped; there were "
            f"{', '.join(sorted(mappings.seen)) or 'no PERF_RECORD_MMAP2 lines'}. Name the binary "
            "as in the recording, and make text with perf script --show-mmap-events"
        )
    return script


def read_event(line: str, mappings: Mappings, script: Script, place: str) -> None:
    """Reads a line that is no sample. Raises PmuError."""
    mapped = _MMAP.search(line)
    if mapped is not None:
        pid, start, size, offset, mode, name = mapped.groups()
        if "x" in mode:
            mappings.add(int(pid), int(start, 16), int(size, 16), int(offset, 16), name.strip())
        return
    replaced = _EXEC.search(line)
    if replaced is not None:
        mappings.forget(int(replaced[1]))
        return
    forked = _FORK.search(line)
    if forked is not None:
        mappings.fork(int(forked[1]), int(forked[2]))
        return
    lost = re.search(r"PERF_RECORD_LOST(?:_SAMPLES)? .*?lost (\d+)", line)
    if lost is not None:
        script.lost += int(lost[1])
    elif line.strip() and not line.startswith("#") and "PERF_RECORD_" not in line:
        raise PmuError(
            f"{place}: neither a sample with the fields {', '.join(FIELDS)} nor an event of perf "
            f"script: {line.strip()[:80]!r}"
        )


def _memory(source: str) -> list[str]:
    """What a data source says, in the words of the table of events: "load", "l1 miss" ..."""
    parts = dict(part.split(" ", 1) for part in source.split("|") if " " in part)
    level = parts.get("LVL", "")
    if "STORE" in parts.get("OP", ""):
        return ["store"]
    if "LOAD" not in parts.get("OP", ""):
        return []
    # "L1 hit", "L3 or L3 hit", "LFB or LFB hit", "Local RAM or RAM hit", "Remote RAM ...",
    # "N/A": nothing is known of it, so nothing is said.
    if "N/A" in level or not level or ("L1" in level and "hit" in level):
        return ["load"]
    # A line that is on its way already was missed by another load: a first-level miss only.
    far = "RAM" in level or "IO" in level or ("L3" in level and "miss" in level)
    return ["load", "l1 miss", "llc miss"] if far else ["load", "l1 miss"]


# From samples to counts


@dataclass
class _Branches:
    """What branch stacks tell.

    Attributes:
      executions: of each instruction, by its number in the disassembly.
      mispredicts: of taken conditional branches, by address.
      indirect_mispredicts: of indirect branches, by address.
      calls: by addresses of caller (None in other code) and callee.
      period: branches between two stacks; 0 when there are no stacks.
      outside: how many executed ranges in other code come on one in the binary.
    """

    executions: list[float]
    mispredicts: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    indirect_mispredicts: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[tuple[int | None, int], float] = field(default_factory=lambda: defaultdict(float))
    period: int = 0
    outside: float = 0.0


def count(script: Script, code: Disassembly) -> Counts:
    """Counts of all of `EVENTS` that the recording tells of, at the binary's instructions.

    An event is taken from the first of its sources (`Event.perf`) that was recorded. Executions
    without branch stacks are those of the instructions, which are then spread over their blocks.

    Raises:
      PmuError: the recording tells of no event.
    """
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
            f"the recording holds {', '.join(sorted(script.periods)) or 'no samples'}, which are "
            "no events of PMU profiles; docs/collect.md lists those to record"
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


@dataclass(frozen=True)
class _Column:
    """The counts of one event."""

    event: Event
    counts: Mapping[int, float]
    outside: float
    period: int
    precise: bool


def _column(event: Event, script: Script, code: Disassembly, branches: _Branches) -> _Column | None:
    """The counts of one event; None when the recording does not tell of it."""
    for source, what in event.perf.items():
        if source == "ibs":
            if "ibs_op" in script.periods:
                # Of samples in other code nothing but their number is known.
                sampled = script.memory["ibs_op"][what]
                return _Column(event, sampled, 0, script.period("ibs_op"), True)
        elif source == "branches":
            if branches.period:
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
    """The counts of an event that branch stacks tell of."""
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


# What a sampling event is an occurrence of, by a part of its name; the first that fits. The first
# ones tell best how often code was executed.
_SAMPLED_BY = (
    (("taken", "tkn"), "taken branches"),
    (("branch", "br_inst", "ret_brn"), "branches"),
    (("inst",), "instructions"),
    (("",), "cycles"),
)


def _sampled_by(event: str) -> int:
    """The row of `_SAMPLED_BY` of a perf event."""
    return next(
        row for row, (parts, _) in enumerate(_SAMPLED_BY) if any(part in event for part in parts)
    )


def _count_branches(script: Script, code: Disassembly) -> _Branches:
    """Executions, mispredicts and calls from branch stacks.

    Between two branches of a stack the code from the older one's target to the newer one's source
    was executed once. Each event that was sampled with stacks tells of the whole run: the one that
    tells it best is taken, and the others are not added to it.
    """
    # Stacks that were taken where branches were mispredicted show too little of the rest.
    events = [event for event in script.stacks if "mis" not in event and "msprd" not in event]
    events.sort(key=lambda event: (_sampled_by(event), -script.stacks[event].number))
    for event in events:
        found = _from_stacks(event, script, code)
        if found is not None:
            return found
    return _Branches([0.0] * len(code.addresses))


def _from_stacks(event: str, script: Script, code: Disassembly) -> _Branches | None:
    """What the stacks of one event tell; None when nothing of this binary."""
    stacks = script.stacks[event]
    unit = _SAMPLED_BY[_sampled_by(event)][1]
    branches = itertools.accumulate((bool(kind & Kind.BRANCH) for kind in code.kinds), initial=0)
    before = list(branches)
    edges = [0.0] * (len(code.addresses) + 1)
    # All of them stand for occurrences of the sampling event until they are scaled.
    inside = outside = occurrences = broken = 0.0
    for (start, end), (weight, cycles) in stacks.ranges.items():
        if start is None or end is None:
            outside += weight
            continue
        first, last = code.index(start), code.index(end)
        if first is None or last is None or not 0 <= last - first < _LONGEST_RANGE:
            broken += weight
            continue
        inside += weight
        edges[first] += weight
        edges[last + 1] -= weight
        occurrences += {
            "taken branches": weight,
            "branches": weight * (before[last + 1] - before[first]),
            "instructions": weight * (last + 1 - first),
            "cycles": cycles,
        }[unit]
    if broken:
        logging.warning(
            "%.2f%% of the executed ranges of branch stacks make no sense and are left out (code "
            "changed while it ran, or the binary is another)",
            100 * broken / (broken + inside + outside),
        )
    if not inside or not occurrences:
        return None
    # Occurrences of the sampling event in one range.
    scale = inside / occurrences
    # Sums of parts that cancel leave a rest.
    executions = [
        value * scale if value * scale > 1e-6 else 0.0 for value in itertools.accumulate(edges)
    ]
    found = _Branches(executions[:-1], period=script.period(event), outside=outside / inside)
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
    return found
