# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Identifies perf's events, however their names are spelled.

One event has many names: "br_inst_retired.near_taken", "BR_INST_RETIRED.NEAR_TAKEN", libpfm's
"br_inst_retired:near_taken", and by code "r20c4" or "cpu/event=0xc4,umask=0x20/". An event is
looked up by its recorded code if there is one, otherwise by its full name.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from compiler_opt_perf.profile.perf_event_table import (
    BY_CODE,
    BY_KERNEL,
    BY_NAME,
    VENDORS,
    KnownEvent,
)

# The type of raw codes in <linux/perf_event.h>.
_RAW = 4


@dataclass(frozen=True)
class Attributes:
    """The recorded attributes of an event; 0 or empty where perf recorded none.

    Attributes:
      type, config, config1: fields of struct perf_event_attr.
      precise: its field precise_ip, 0 to 3.
      fields: the fields of samples, such as "DATA_SRC".
      branches: the kinds of branches in the stacks, such as "ANY".
    """

    type: int
    config: int = 0
    config1: int = 0
    precise: int = 0
    fields: frozenset[str] = frozenset()
    branches: frozenset[str] = frozenset()

    @property
    def all_branches(self) -> bool:
        """Whether stacks hold all taken branches, so that the code between two of them ran."""
        some = {"CALL_STACK", "IN_TX", "NO_TX", "ABORT_TX"}
        return not self.branches or ("ANY" in self.branches and self.branches.isdisjoint(some))


@dataclass
class RecordingHeader:
    """The header of a recording.

    Attributes:
      vendor: the processor's vendor, "Intel", "AMD" or "other"; empty if unknown.
      pmus: number of the PMU type in the kernel -> name of the PMU.
      events: perf's name of the event, with modifiers -> its attributes.
    """

    vendor: str = ""
    pmus: dict[int, str] = field(default_factory=dict)
    events: dict[str, Attributes] = field(default_factory=dict)

    def attributes_of(self, printed: str) -> Attributes | None:
        """The attributes of an event, if known; the header may list it with other modifiers."""
        base = _Spelling.of(printed).base
        alike = {attr for name, attr in self.events.items() if _Spelling.of(name).base == base}
        return self.events.get(printed) or (alike.pop() if len(alike) == 1 else None)

    def read(self, line: str) -> None:
        """Reads a line of `perf evlist -v` or `perf script --header`; ignores other lines."""
        event = _EVENT_LINE.match(line)
        if event is not None:
            rest = line[event.end(event.lastgroup or 0) :]
            self.events[event[event.lastgroup or 0]] = _attributes(rest)
        elif line.startswith("# cpuid : "):
            self.vendor = VENDORS.get(line.split(" : ")[1].split(",")[0].strip(), "other")
        elif line.startswith("# pmu mappings: "):
            for name, number in re.findall(r"(\S+) = ([0-9]{1,10})\b", line):
                self.pmus[int(number)] = name


# "cycles:u: type: 0, size: ..." and "# event : name = cycles:u, , id = { 1 }, type = 0, size = ..."
_EVENT_LINE = re.compile(
    r"# event : name = (?P<name>.*?), ,? ?(?:id|type) |(?P<listed>[^\s#].*?): type: \d"
)


# An unsigned number of 64 bits.
_NUMBER = r"0x[0-9a-fA-F]{1,16}|[0-9]{1,20}"


def _number(text: str) -> int:
    return int(text, 16) if text.startswith("0x") else int(text)


def _attributes(text: str) -> Attributes:
    def number(name: str) -> int:
        found = re.search(rf"(?:^|[\s,{{]){name}(?: \}})?\s?[:=] ({_NUMBER})", text)
        return _number(found[1]) if found else 0

    def words(name: str) -> frozenset[str]:
        found = re.search(rf"\b{name}\s?[:=] ([A-Z0-9_|]+)", text)
        return frozenset(found[1].split("|")) if found else frozenset()

    return Attributes(
        number("type"),
        number("config"),
        number("config1"),
        number("precise_ip"),
        words("sample_type"),
        words("branch_sample_type"),
    )


@dataclass(frozen=True)
class Identity:
    """The identity of an event.

    Attributes:
      name: `KnownEvent.name`; for an unknown event, perf's name without modifiers.
      known: the row of the table; None for an unknown event.
      precise: whether each sample is attributed to the instruction that caused it.
      cores: the PMU on processors with two kinds of cores ("cpu_core" or "cpu_atom"); else empty.
      levels: the counted privilege levels, letters of "ukh".
    """

    name: str
    known: KnownEvent | None
    precise: bool
    cores: str
    levels: frozenset[str]


# perf's modifiers after the last colon or slash, and libpfm's attributes.
_MODIFIERS = re.compile(r"[ukhHGpPSDWebIR]*")
_ATTRIBUTES = {"u", "k", "h", "mh", "mg", "excl", "pinned", "precise", "e", "i", "intx", "intxcp"}
# The core PMUs, whose codes are in the table.
_CORES = ("cpu", "cpu_core", "cpu_atom")
_RAW_NAME = re.compile(r"(?:r|raw 0x)([0-9a-f]{1,16})", re.IGNORECASE)


def identify(printed: str, header: RecordingHeader | None = None) -> Identity:
    """Identifies the event that perf prints as `printed`.

    The recorded code decides; if it is missing, or not in the table, the name does.
    """
    header = header or RecordingHeader()
    attributes = header.attributes_of(printed)
    spelling = _Spelling.of(printed)
    by_name = BY_NAME.get(spelling.name)
    coded = list(_by_code(spelling, attributes, header))
    known = by_name if by_name in coded or not coded else None
    if coded and known is None and len(coded) == 1:
        known = coded[0]
    if by_name is None and attributes is not None and _is_ibs(attributes, header):
        known = BY_NAME["ibs_op"]
    precise = attributes.precise > 0 if attributes is not None else spelling.precise
    name = known.name if known else spelling.base
    if known is None and name.lower() in BY_NAME:
        # The event has a known name, but the code of another event.
        name = f"{printed} (of another code)"
    return Identity(
        name,
        known,
        precise or name == "ibs_op",
        spelling.cores,
        spelling.levels or frozenset("ukh"),
    )


@dataclass(frozen=True)
class _Spelling:
    """The parts of an event's printed name.

    Attributes:
      base: the name without modifiers.
      name: the event's name in lower case, with dots between its parts; empty for a bare code.
      cores: see `Identity`.
      code: (code, second register) in the name; None if it has none.
      precise, levels: the meaning of the modifiers, see `Identity`.
    """

    base: str
    name: str
    cores: str
    code: tuple[int, int] | None
    precise: bool
    levels: frozenset[str]

    @classmethod
    def of(cls, printed: str) -> "_Spelling":
        if "/" in printed:
            return cls._of_pmu(printed)
        first, *rest = printed.rpartition("::")[2].split(":")
        parts, precise, levels = [first], False, ""
        for number, part in enumerate(rest, 1):
            word, equals, value = part.partition("=")
            if word.lower() == "precise":
                precise = value not in ("", "0")
            elif equals or word.lower() in _ATTRIBUTES:
                levels += word if word in ("u", "k", "h") and value != "0" else ""
            elif number == len(rest) and _MODIFIERS.fullmatch(part):
                precise, levels = precise or "p" in part.lower(), levels + part
            else:
                parts.append(part)
        raw = _RAW_NAME.fullmatch(first)
        base = ".".join(parts)
        return cls(
            base,
            "" if raw else base.lower(),
            "",
            (int(raw[1], 16), 0) if raw else None,
            precise,
            frozenset(levels) & set("ukh"),
        )

    @classmethod
    def _of_pmu(cls, printed: str) -> "_Spelling":
        pmu, _, rest = printed.partition("/")
        text, _, modifiers = rest.rpartition("/")
        terms = [term.partition("=")[::2] for term in text.split(",") if term]
        named = [word for word, value in terms if not value]
        # Other words are terms such as "percore".
        known = [word for word in named if _plain(word) in BY_NAME or _RAW_NAME.fullmatch(word)]
        numbers = {word: _number(value) for word, value in terms if re.fullmatch(_NUMBER, value)}
        # A generic event stands in the PMU's place, as in "LLC-load-misses/period=1009/u".
        name = (known or named or ["" if pmu in _CORES else pmu])[0]
        base = name or printed.rpartition("/")[0] + "/"
        code = None
        raw = _RAW_NAME.fullmatch(name)
        if raw:
            code = int(raw[1], 16), 0
        elif pmu in _CORES and not {"event", "config"}.isdisjoint(numbers):
            code = _composed(numbers)
        changed = any(numbers.get(word) for word in ("cmask", "inv", "edge", "any"))
        changed = changed or ("load_latency" in name.lower() and numbers.get("ldlat", 4) != 4)
        if changed:
            base = printed.rpartition("/")[0] + "/"
        return cls(
            base,
            "" if code or changed else _plain(name),
            pmu if pmu in ("cpu_core", "cpu_atom") else "",
            code,
            "p" in modifiers.lower(),
            frozenset(modifiers) & set("ukh"),
        )


def _plain(name: str) -> str:
    """An event's name as in the table; libpfm puts a colon between its parts."""
    return name.lower().replace(":", ".")


def _composed(numbers: dict[str, int]) -> tuple[int, int]:
    """Composes (code, second register) from the terms of a PMU event."""
    event = numbers.get("event", 0)
    code = numbers.get("config", 0) | event & 0xFF | numbers.get("umask", 0) << 8
    # The high bits of AMD's event number, and the bits that change an event's meaning.
    code |= event >> 8 << 32 | numbers.get("edge", 0) << 18 | numbers.get("any", 0) << 21
    code |= numbers.get("inv", 0) << 23 | numbers.get("cmask", 0) << 24
    return code, numbers.get("config1", 0) or numbers.get("ldlat", 0) or numbers.get("frontend", 0)


def _is_ibs(attributes: Attributes, header: RecordingHeader) -> bool:
    return header.pmus.get(attributes.type) == "ibs_op"


def _by_code(
    spelling: _Spelling, attributes: Attributes | None, header: RecordingHeader
) -> Iterator[KnownEvent]:
    """Yields the events that the code may mean; without a known vendor, each vendor's event."""
    code = spelling.code
    if attributes is not None:
        # On processors with two kinds of cores the upper half gives the PMU.
        row = BY_KERNEL.get((attributes.type, attributes.config & 0xFFFF_FFFF))
        if row is not None:
            yield row
        pmu = header.pmus.get(attributes.type, "cpu" if attributes.type == _RAW else "")
        if pmu not in _CORES:
            return
        code = attributes.config, attributes.config1
    if code is None:
        return
    found = []
    for vendor in [header.vendor] if header.vendor else VENDORS.values():
        row = BY_CODE.get(vendor, {}).get(code)
        if row is not None and row not in found:
            found.append(row)
    yield from found
