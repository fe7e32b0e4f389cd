# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads what `perf script` prints, and adds up the samples that fell into one binary."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from absl import logging

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.memory_levels import distance
from compiler_opt_perf.profile.perf_events import Facts, Identity, identify
from compiler_opt_perf.profile.perf_mappings import MMAP, Mappings, Recorded

# What the reader needs; data source, weight (a load's latency) and branch stack where they were
# recorded.
FIELDS = ("pid", "event", "ip", "period")
OPTIONAL_FIELDS = ("data_src", "weight", "brstack")

_FORK = re.compile(r"PERF_RECORD_FORK\(([0-9]{1,10}):\d+\):\(([0-9]{1,10}):\d+\)")
_EXEC = re.compile(r"PERF_RECORD_COMM exec: .*:([0-9]{1,10})/\d+$")
_HEAD = (
    r"^\s*(?P<pid>-?[0-9]{1,10})(?:/-?\d+)?\s+(?P<period>[0-9]{1,20})\s+(?P<event>(?:raw )?\S+):\s+"
    r"(?:[0-9a-f]+\s+(?P<source>\|.*?)\s+)?"
)
_SAMPLE = re.compile(
    _HEAD + r"(?:(?P<weight>[0-9]{1,20})\s+)?"
    r"(?P<ip>[0-9a-f]{1,16})"
    r"(?P<stack>(?:\s+0x[0-9a-f]+/0x[0-9a-f]+/\S*)*)\s*$"
)
# A sample whose call chain follows in lines of its own, which begin with a tab. The first of these
# is the sample's address; of an empty chain there is none.
_EMPTY = " (empty call chain)"
_WITHOUT_CHAIN = re.compile(_HEAD + r".*" + re.escape(_EMPTY) + "$")
_CHAIN = re.compile(r"^\t\s*[0-9a-f]+(?:\s.*)?$")
_CHAIN_STACK = re.compile(r"^\s*0x[0-9a-f]+/0x[0-9a-f]+/")


@dataclass(frozen=True)
class Hop:
    """A branch of a stack; an end in other code is None.

    Attributes:
      mispredicted: None when the record does not say.
      cycles: since the branch before it; 0 where the processor does not count them.
      taken: newer processors can record those that are not.
    """

    source: int | None
    target: int | None
    mispredicted: bool | None
    cycles: int
    taken: bool = True


@dataclass
class Stacks:
    """The branch stacks of one perf event, added up: a recording has many more than code branches.

    Attributes:
      number: of stacks.
      branches: by source, target and whether it was mispredicted, occurrences of the event that
        such taken branches of stacks stand for. A stack of n branches that was taken once a period
        stands for period / n of each.
      not_taken: by source, the same of mispredicted branches that were not taken.
      predicted: whether any branch says if it was predicted.
      ranges: by the older branch's target and the newer one's source, the same of stretches
        between two branches of a stack, of which it has n - 1; and their cycles, multiplied.
      newest: by the address of the sample and the ends of the last branch before it, the sum of
        the periods.
    """

    number: int = 0
    branches: dict[tuple[int | None, int | None, bool], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    not_taken: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    predicted: bool = False
    ranges: dict[tuple[int | None, int | None], tuple[float, float]] = field(default_factory=dict)
    newest: Counter[tuple[int | None, int | None, int | None]] = field(default_factory=Counter)

    def add(self, address: int | None, period: int, hops: Sequence[Hop]) -> None:
        """Adds a stack, its newest branch first, of a sample at `address`."""
        taken = [hop for hop in hops if hop.taken]
        if not taken:
            return
        self.number += 1
        self.newest[address, taken[0].source, taken[0].target] += period
        for hop in hops:
            self.predicted = self.predicted or hop.mispredicted is not None
            if hop.taken:
                place = hop.source, hop.target, bool(hop.mispredicted)
                self.branches[place] += period / len(taken)
            elif hop.mispredicted and hop.source is not None:
                self.not_taken[hop.source] += period / len(taken)
        for newer, older in itertools.pairwise(taken):
            ends = older.target, newer.source
            weight = period / (len(taken) - 1)
            executions, cycles = self.ranges.get(ends, (0.0, 0.0))
            self.ranges[ends] = executions + weight, cycles + weight * newer.cycles


@dataclass
class Script:
    """The samples of one recording that fell into one binary; addresses are link-time addresses.

    Perf events have the names of `Event.perf` where it is known what they count (`identify`), else
    perf's name without modifiers.

    Attributes:
      program: the binary's name.
      samples: for each perf event, the summed periods by address.
      outside: for each perf event, the summed periods of all other code.
      periods: for each perf event, how many samples it has, and the sum of their periods.
      precise: for each perf event, whether it was recorded with a precise modifier (p).
      unknown: perf's names of the events of which it is not known what they count.
      stacks: for each perf event, its branch stacks.
      filtered: events with stacks that hold some kinds of branches only, which are not in `stacks`.
      memory: for each perf event, the summed periods by address of samples that were a "load", an
        "l1 miss", an "llc miss", a "store", by their data source; as "latency", periods times
        weight of the loads, and as "timed", periods of those loads that have a weight.
      untold: for each perf event, how many of its loads do not tell where they found their data.
      hidden: by the name of a mapping that the program put over its own code, the samples there.
      lost: samples that perf says were lost.
    """

    program: str = ""
    samples: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    outside: Counter[str] = field(default_factory=Counter)
    periods: dict[str, tuple[int, int]] = field(default_factory=dict)
    precise: dict[str, bool] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    stacks: dict[str, Stacks] = field(default_factory=lambda: defaultdict(Stacks))
    filtered: set[str] = field(default_factory=set)
    memory: dict[str, dict[str, Counter[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )
    untold: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    lost: int = 0

    def period(self, event: str) -> int:
        """Occurrences between two samples of a perf event, on average.

        A recording at a given frequency has another period at each sample.
        """
        samples, occurrences = self.periods[event]
        return max(1, round(occurrences / samples))


def read_script(
    lines: Iterable[str],
    binary: Path,
    origin: str,
    on_stack: Callable[[str, list[Hop]], None] | None = None,
    recorded: Recorded | None = None,
    facts: Facts | None = None,
) -> Script:
    """Reads the output of `perf script --show-mmap-events --show-task-events -F ...`.

    Args:
      lines: the output; the fields are `FIELDS` and any of `OPTIONAL_FIELDS`, with call chains or
        without, after a header (`--header`) or not.
      binary: whose instructions are wanted; in the recording it may have been in another folder.
      origin: what to call the output in messages.
      on_stack: called with each branch stack, its newest branch first, and its event; of branches
        that were taken.
      recorded: which of the mapped files is the binary; any of its name when None.
      facts: what is known of the recording besides.

    Raises:
      PmuError: a line is neither a sample nor an event, or the binary was never mapped.
    """
    mappings = Mappings(binary, recorded or Recorded(binary, (), origin))
    reader = _Reader(mappings, facts or Facts(), Script(program=binary.name))
    number = 0
    for number, line in _joined(lines, origin, reader.facts):
        place = f"{origin}:{number}"
        sample = _SAMPLE.match(line)
        if sample is None:
            reader.read_other(line, place)
            continue
        event, hops = reader.read_sample(sample, place)
        if hops and on_stack is not None:
            on_stack(event, [hop for hop in hops if hop.taken])
    if not number:
        raise PmuError(f"{origin}: empty; was anything recorded?")
    if not mappings.found:
        raise PmuError(
            f"{origin}: {binary.name} was never mapped; there were "
            f"{', '.join(sorted(mappings.seen)) or 'no PERF_RECORD_MMAP2 lines'}. Name the binary "
            "as in the recording, and make text with perf script --show-mmap-events"
        )
    return reader.script


def _joined(lines: Iterable[str], origin: str, facts: Facts) -> Iterator[tuple[int, str]]:
    """Numbered lines, samples of several lines put together; the header goes to `facts`.

    Raises:
      PmuError: the last line is not complete.
    """
    sample, first, has_address, header = "", 0, False, False
    number = 0
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            raise PmuError(
                f"{origin}:{number}: the last line is not complete: it is truncated (disk full?); "
                "make the text again with perf script"
            )
        if sample and _CHAIN.match(line):
            # The first address of a chain is the sample's own.
            sample += "" if has_address else f" {line.split()[0]}"
            has_address = True
            continue
        if sample and _CHAIN_STACK.match(line):
            sample += f" {line.strip()}"
            continue
        if sample:
            if not line.strip() and not _SAMPLE.match(sample):
                sample += _EMPTY
            yield first, f"{sample}\n"
            sample = ""
        if line.startswith("#"):
            facts.read(line)
            # Between two such lines a command line may go over several.
            header = not header if line.startswith("# =====") else header
            yield number, "\n"
        elif header:
            yield number, "\n"
        elif " " in line and "PERF_RECORD_" not in line:
            sample, first, has_address = line.rstrip("\n"), number, False
        else:
            yield number, line
    if sample:
        yield first, f"{sample}\n"


@dataclass
class _Reader:
    """Adds up samples.

    Attributes:
      mappings: of the lines so far.
      facts: what is known of the recording's events.
      script: what was added up.
      identities: of the events that were seen, by perf's name.
      names: the names in `script` of these.
    """

    mappings: Mappings
    facts: Facts
    script: Script
    identities: dict[str, Identity] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def name(self, printed: str) -> str:
        """The name in `script` of the event that perf calls `printed`.

        Two events that count the same at the same time are not added up: the second one gets a
        name of which nothing is known.
        """
        known = self.names.get(printed)
        if known is not None:
            return known
        event = identify(printed, self.facts)
        name, is_known = event.name, event.known is not None
        for other, earlier in self.identities.items():
            if (
                is_known
                and self.names[other] == name
                and event.cores in ("", earlier.cores)
                and event.levels & earlier.levels
            ):
                logging.warning("%s counts the same as %s: it is left out", printed, other)
                name, is_known = f"{printed} (again)", False
                break
        self.identities[printed] = event
        self.names[printed] = name
        if event.known is None:
            self.script.unknown.add(name)
        attributes = self.facts.of(printed)
        if attributes is not None and not attributes.all_branches:
            self.script.filtered.add(name)
        self.script.precise[name] = event.precise and self.script.precise.get(name, True)
        return name

    def read_sample(self, sample: re.Match[str], place: str) -> tuple[str, list[Hop]]:
        """Adds a sample; returns its event and its branch stack, the newest branch first."""
        script = self.script
        pid, period = int(sample["pid"]), int(sample["period"])
        event = self.name(sample["event"])
        samples, occurrences = script.periods.get(event, (0, 0))
        script.periods[event] = samples + 1, occurrences + period
        address = self.mappings.link_time(pid, int(sample["ip"], 16))
        if address is None:
            script.outside[event] += period
            hiding = self.mappings.hidden_by(pid, int(sample["ip"], 16))
            if hiding is not None:
                script.hidden[hiding] += 1
        else:
            script.samples[event][address] += period
            self._add_memory(sample, event, address, period)
        hops = _read_stack(sample["stack"], pid, self.mappings, place)
        if hops:
            if event in script.filtered:
                return event, []
            script.stacks[event].add(address, period, hops)
        return event, hops

    def _add_memory(self, sample: re.Match[str], event: str, address: int, period: int) -> None:
        """Adds what the data source and the weight of a sample say."""
        memory = self.script.memory[event]
        is_load = not sample["source"]
        if sample["source"]:
            operation, level = _source(sample["source"])
            is_load = operation == "load"
            if operation == "store":
                memory["store"][address] += period
            elif is_load and level is None:
                self.script.untold[event] += 1
            elif is_load:
                for what in level or ():
                    memory[what][address] += period
        weight = int(sample["weight"] or 0)
        if weight and is_load:
            memory["latency"][address] += period * weight
            memory["timed"][address] += period

    def read_other(self, line: str, place: str) -> None:
        """Reads a line that is no sample. Raises PmuError."""
        without = _WITHOUT_CHAIN.match(line)
        if without is not None:
            event, period = self.name(without["event"]), int(without["period"])
            samples, occurrences = self.script.periods.get(event, (0, 0))
            self.script.periods[event] = samples + 1, occurrences + period
            self.script.outside[event] += period
        else:
            read_event(line, self.mappings, self.script, place)


def _read_stack(text: str, pid: int, mappings: Mappings, place: str) -> list[Hop]:
    """A branch stack: for each branch "source/target/flags/..."; empty where there is none."""
    hops = []
    previous: tuple[int, int] | None = None
    try:
        for entry in text.split():
            from_text, to_text, flags, *rest = entry.split("/")
            source, target = int(from_text, 16), int(to_text, 16)
            # What the processor took back was not executed, and the code before and after it was
            # executed in one go.
            if "SPEC_WRONG_PATH" in rest:
                continue
            # Some processors record the newest branch twice. A branch that does follow itself leads
            # back to itself.
            if (source, target) == previous and target > source:
                continue
            previous = source, target
            hops.append(
                Hop(
                    mappings.link_time(pid, source),
                    mappings.link_time(pid, target),
                    # Newer versions of perf may print several letters.
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
    return hops


def read_event(line: str, mappings: Mappings, script: Script, place: str) -> None:
    """Reads a line that is no sample. Raises PmuError."""
    mapped = MMAP.search(line)
    if mapped is not None:
        pid, start, size, offset, identity, mode, name = mapped.groups()
        if "x" in mode:
            begin, length, where = (int(number, 16) for number in (start, size, offset))
            mappings.add(int(pid), begin, length, where, name.strip(), identity or "")
        return
    replaced = _EXEC.search(line)
    if replaced is not None:
        mappings.forget(int(replaced[1]))
        return
    forked = _FORK.search(line)
    if forked is not None:
        mappings.fork(int(forked[1]), int(forked[2]))
        return
    if "PERF_RECORD_SAMPLE" in line:
        raise PmuError(
            f"{place}: is a dump of raw records (perf script -D), which has no branch stacks; make "
            "text without -D, by the command of docs/collect-in-hardware.md"
        )
    lost = re.search(r"PERF_RECORD_LOST(?:_SAMPLES)? .*?lost ([0-9]{1,20})", line)
    if lost is not None:
        script.lost += int(lost[1])
    elif line.strip() and not line.startswith("#") and "PERF_RECORD_" not in line:
        raise PmuError(
            f"{place}: neither a sample with the fields {', '.join(FIELDS)} nor an event of perf "
            f"script: {line.strip()[:80]!r}"
        )


def _source(text: str) -> tuple[str, tuple[str, ...] | None]:
    """What a data source says: "load", "store" or another operation, and where a load ended.

    The latter in the words of the table of events: "load", "l1 miss", "llc miss"; None when it does
    not tell.
    """
    parts = dict(part.split(" ", 1) for part in text.split("|") if " " in part)
    operation = parts.get("OP", "")
    if "STORE" in operation:
        return "store", None
    if "LOAD" not in operation:
        return "", None
    found = distance(parts.get("LVL", ""))
    if found is None:
        return "load", None
    return "load", {"l1": ("load",), "cache": ("load", "l1 miss")}.get(
        found, ("load", "l1 miss", "llc miss")
    )
