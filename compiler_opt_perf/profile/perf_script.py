# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the output of `perf script`, and adds up the samples in one binary."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from absl import logging

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.memory_levels import distance
from compiler_opt_perf.profile.perf_events import Identity, RecordingHeader, identify
from compiler_opt_perf.profile.perf_mappings import MMAP, Mappings, RecordedBinary
from compiler_opt_perf.profile.perf_stacks import StackBranch, Stacks, read_stack

# Fields that the reader needs, and fields that it reads if they were recorded. The weight is a
# load's latency.
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
# A call chain follows its sample in separate lines that begin with a tab. Its first line is the
# sample's address; an empty chain has no line.
_EMPTY = " (empty call chain)"
_WITHOUT_CHAIN = re.compile(_HEAD + r".*" + re.escape(_EMPTY) + "$")
_CHAIN = re.compile(r"^\t\s*[0-9a-f]+(?:\s.*)?$")
_CHAIN_STACK = re.compile(r"^\s*0x[0-9a-f]+/0x[0-9a-f]+/")


@dataclass
class Script:
    """The samples of one recording in one binary, at link-time addresses.

    Keys are names of perf events as in `Event.perf` (see `identify`). Unknown events have perf's
    name without modifiers.

    Attributes:
      program: the binary's name.
      samples: event -> address -> sum of periods.
      outside: event -> sum of periods in other code.
      periods: event -> (number of samples, sum of periods), in all code.
      precise: event -> whether it was recorded with a precise modifier (p).
      unknown: the unknown events.
      stacks: event -> its branch stacks.
      filtered: events whose stacks hold only some kinds of branches; `stacks` lacks them.
      memory: event -> operation -> address -> sum of periods. The operations "load", "l1 miss",
        "llc miss" and "store" come from the data source. "timed" are loads with a weight, and
        "latency" their periods times weight.
      without_level: event -> number of loads without a memory level.
      hidden: name of a mapping over the program's code -> number of samples in it.
      lost: number of samples that perf lost.
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
    without_level: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    lost: int = 0

    def period(self, event: str) -> int:
        """The mean period of a perf event's samples, at least 1.

        A recording at a fixed frequency varies the period.
        """
        samples, occurrences = self.periods[event]
        return max(1, round(occurrences / samples))


def read_script(
    lines: Iterable[str],
    binary: Path,
    origin: str,
    on_stack: Callable[[str, list[StackBranch]], None] | None = None,
    recorded: RecordedBinary | None = None,
    header: RecordingHeader | None = None,
) -> Script:
    """Reads the output of `perf script --show-mmap-events --show-task-events -F ...`.

    Args:
      lines: the output, with `FIELDS` and any of `OPTIONAL_FIELDS`. A header (`--header`) and call
        chains are optional.
      binary: the wanted binary; its folder may differ from the recorded one.
      origin: name of the output in messages.
      on_stack: called with the event and the taken branches of each stack, newest first.
      recorded: identifies the binary among the mapped files; None takes any file of its name.
      header: what perf's other commands printed about the recording.

    Raises:
      PmuError: a line is neither a sample nor an event, or the binary was never mapped.
    """
    mappings = Mappings(binary, recorded or RecordedBinary(binary, (), origin))
    reader = _Reader(mappings, header or RecordingHeader(), Script(program=binary.name))
    number = 0
    for number, line in _joined(lines, origin, reader.header):
        place = f"{origin}:{number}"
        sample = _SAMPLE.match(line)
        if sample is None:
            reader.read_other(line, place)
            continue
        event, branches = reader.read_sample(sample, place)
        if branches and on_stack is not None:
            on_stack(event, [branch for branch in branches if branch.taken])
    if not number:
        raise PmuError(f"{origin}: empty; was anything recorded?")
    if not mappings.found:
        raise PmuError(
            f"{origin}: {binary.name} was never mapped; there were "
            f"{', '.join(sorted(mappings.seen)) or 'no PERF_RECORD_MMAP2 lines'}. Name the binary "
            "as in the recording, and make text with perf script --show-mmap-events"
        )
    return reader.script


def _joined(
    lines: Iterable[str], origin: str, header: RecordingHeader
) -> Iterator[tuple[int, str]]:
    """Yields lines with their numbers, and joins the lines of one sample.

    Args:
      lines: the output of perf script.
      origin: name of the output in messages.
      header: receives the lines of a header.

    Raises:
      PmuError: the last line is not complete.
    """
    sample, first, has_address, in_header = "", 0, False, False
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
            header.read(line)
            # The recorded command in the header may have line breaks.
            in_header = not in_header if line.startswith("# =====") else in_header
            yield number, "\n"
        elif in_header:
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
      mappings: the mappings of all lines so far.
      header: the recording's header.
      script: the result.
      identities: perf's name of each event so far -> its identity.
      names: perf's name of each event so far -> its name in `script`.
    """

    mappings: Mappings
    header: RecordingHeader
    script: Script
    identities: dict[str, Identity] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def name(self, printed: str) -> str:
        """The name in `script` of the event that perf calls `printed`.

        Two events that count the same are not added up: the second gets an unknown name.
        """
        known = self.names.get(printed)
        if known is not None:
            return known
        event = identify(printed, self.header)
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
        attributes = self.header.attributes_of(printed)
        if attributes is not None and not attributes.all_branches:
            self.script.filtered.add(name)
        self.script.precise[name] = event.precise and self.script.precise.get(name, True)
        return name

    def read_sample(self, sample: re.Match[str], place: str) -> tuple[str, list[StackBranch]]:
        """Adds a sample; returns its event and its branch stack, newest branch first."""
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
        branches = read_stack(sample["stack"], pid, self.mappings, place)
        if branches:
            if event in script.filtered:
                return event, []
            script.stacks[event].add(address, period, branches)
        return event, branches

    def _add_memory(self, sample: re.Match[str], event: str, address: int, period: int) -> None:
        """Adds the data source and the weight of a sample."""
        memory = self.script.memory[event]
        is_load = not sample["source"]
        if sample["source"]:
            operation, level = _source(sample["source"])
            is_load = operation == "load"
            if operation == "store":
                memory["store"][address] += period
            elif is_load and level is None:
                self.script.without_level[event] += 1
            elif is_load:
                for what in level or ():
                    memory[what][address] += period
        weight = int(sample["weight"] or 0)
        if weight and is_load:
            memory["latency"][address] += period * weight
            memory["timed"][address] += period

    def read_other(self, line: str, place: str) -> None:
        """Reads a line that is not a sample with an address. Raises PmuError."""
        without = _WITHOUT_CHAIN.match(line)
        if without is not None:
            event, period = self.name(without["event"]), int(without["period"])
            samples, occurrences = self.script.periods.get(event, (0, 0))
            self.script.periods[event] = samples + 1, occurrences + period
            self.script.outside[event] += period
        else:
            read_event(line, self.mappings, self.script, place)


def read_event(line: str, mappings: Mappings, script: Script, place: str) -> None:
    """Reads a record of a mapping, process or loss. Raises PmuError: the line is something else."""
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
            "the text without -D, by the command in docs/collect-in-hardware.md"
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
    """Parses a sample's data source.

    Returns:
      The operation: "load", "store", or empty for another. For a load also the operations of
      `Script.memory` that it counts as; None if the source gives no memory level.
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
