# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads what `perf script` prints, and adds up the samples that fell into one binary."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compiler_opt_perf.binary.elf import open_elf
from compiler_opt_perf.pmu.errors import PmuError

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
        place = f"{origin}:{number}"
        if not line.endswith("\n"):
            raise PmuError(
                f"{place}: the last line is not complete: it is truncated (disk full?); "
                "make the text again with perf script"
            )
        sample = _SAMPLE.match(line)
        if sample is None:
            read_event(line, mappings, script, place)
            continue
        event, hops = _read_sample(sample, mappings, script, place)
        if hops and on_stack is not None:
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


def _read_sample(
    sample: re.Match[str], mappings: Mappings, script: Script, place: str
) -> tuple[str, list[Hop]]:
    """Adds a sample; returns its event and its branch stack, the newest branch first."""
    pid, period = int(sample["pid"]), int(sample["period"])
    event = base_name(sample["event"])
    script.precise[event] = _is_precise(sample["event"])
    samples, occurrences = script.periods.get(event, (0, 0))
    script.periods[event] = samples + 1, occurrences + period
    address = mappings.link_time(pid, int(sample["ip"], 16))
    if address is None:
        script.outside[event] += period
    else:
        script.samples[event][address] += period
        kinds = _memory(sample["source"]) if sample["source"] else []
        for what in kinds:
            script.memory[event][what][address] += period
        weight = int(sample["weight"] or 0)
        if weight and ("load" in kinds or not sample["source"]):
            script.memory[event]["latency"][address] += period * weight
            script.memory[event]["timed"][address] += period
    hops = _read_stack(sample["stack"], pid, mappings, place)
    if hops:
        script.stacks[event].add(address, period, hops)
    return event, hops


def _read_stack(text: str, pid: int, mappings: Mappings, place: str) -> list[Hop]:
    """A branch stack: for each branch "source/target/flags/..."; empty where there is none."""
    hops = []
    try:
        for entry in text.split():
            source, target, flags, *rest = entry.split("/")
            hops.append(
                Hop(
                    mappings.link_time(pid, int(source, 16)),
                    mappings.link_time(pid, int(target, 16)),
                    # Newer versions of perf may print several letters.
                    mispredicted="M" in flags,
                    cycles=int(rest[2]) if len(rest) > 2 and rest[2].isdigit() else 0,
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
