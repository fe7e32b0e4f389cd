# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What perf's events count, however they are spelled.

One event has many names: "br_inst_retired.near_taken", "BR_INST_RETIRED.NEAR_TAKEN" and, by
libpfm, "br_inst_retired:near_taken"; "r20c4" and "cpu/event=0xc4,umask=0x20/" by its code. An event
is looked up by the code that perf recorded, where there is one, else by its whole name. A name that
the table does not have says nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

# What a sampling event is an occurrence of: the first ones are the best measure of how often code
# was executed.
Unit = Literal["taken branches", "branches", "instructions", "cycles"]
UNITS: tuple[Unit, ...] = ("taken branches", "branches", "instructions", "cycles")

# Numbers of <linux/perf_event.h>.
_HARDWARE, _SOFTWARE, _CACHE, _RAW = 0, 1, 3, 4
# A code that needs a second register: IA32_PEBS_LD_LAT_THRESHOLD or MSR_PEBS_FRONTEND.
Code = int | tuple[int, int]


@dataclass(frozen=True)
class Known:
    """An event of which it is known what it counts.

    Attributes:
      name: as `Event.perf` has it.
      unit: what branch stacks that were taken at it are scaled by; None when they show too little
        of the rest of the program, as stacks at mispredicts do.
      spellings: further names, in small letters, with dots between their parts.
      intel, amd: codes of the cores' counters; with a second register, both.
      kernel: type and code of perf's own events.
    """

    name: str
    unit: Unit | None = None
    spellings: tuple[str, ...] = ()
    intel: tuple[Code, ...] = ()
    amd: tuple[Code, ...] = ()
    kernel: tuple[tuple[int, int], ...] = ()


# Names and codes: tools/perf/pmu-events and the manual of perf list in Linux, libpfm's tables,
# Intel's and AMD's manuals. Codes that differ between processors of one maker are left out: 0x01c5
# is of mispredicted conditional branches up to Skylake, of taken ones since Ice Lake; 0x4088 of
# branches that are taken on Nehalem, of others since Sandy Bridge.
KNOWN = (
    Known(
        "br_inst_retired.near_taken",
        "taken branches",
        ("br_inst_retired.near_taken_pebs", "br_inst_retired.near_taken_ps"),
        intel=(0x20C4,),
    ),
    Known("br_inst_exec.taken", "taken branches"),
    Known(
        "ex_ret_brn_tkn",
        "taken branches",
        ("retired_taken_branch_instructions", "branch-brs"),
        amd=(0xC4,),
    ),
    Known(
        "branches",
        "branches",
        (
            "branch-instructions",
            *("br_inst_retired.all_branches", "br_inst_retired.all_branches_pebs"),
            *("br_inst_exec.all_branches", "br_inst_exec.any", "br_inst_retired.any"),
            *("ex_ret_brn", "retired_branch_instructions"),
        ),
        intel=(0xC4, 0x04C4, 0xFF88),
        amd=(0xC2,),
        kernel=((_HARDWARE, 4),),
    ),
    Known(
        "instructions",
        "instructions",
        (
            *("inst_retired.any", "inst_retired.any_p", "inst_retired.prec_dist"),
            *("instructions_retired", "ex_ret_instr", "retired_instructions"),
        ),
        intel=(0xC0, 0x01C0, 0x0100),
        amd=(0xC0,),
        kernel=((_HARDWARE, 1),),
    ),
    Known(
        "cycles",
        "cycles",
        (
            *("cpu-cycles", "cpu_clk_unhalted.thread", "cpu_clk_unhalted.thread_p"),
            *("cpu_clk_unhalted.core", "cpu_clk_unhalted.core_p", "cpu_clk_unhalted"),
            *("unhalted_core_cycles", "ls_not_halted_cyc", "cycles_not_in_halt"),
        ),
        intel=(0x3C,),
        amd=(0x76,),
        kernel=((_HARDWARE, 0),),
    ),
    Known("cpu-clock", None, ("task-clock",), kernel=((_SOFTWARE, 0), (_SOFTWARE, 1))),
    Known(
        "mem_inst_retired.all_loads",
        None,
        ("mem_uops_retired.all_loads", "mem_uop_retired.any_loads"),
        intel=(0x81D0,),
    ),
    Known(
        "mem_inst_retired.all_stores",
        None,
        ("mem_uops_retired.all_stores", "mem_uop_retired.any_stores"),
        intel=(0x82D0,),
    ),
    Known(
        "mem_load_retired.l1_miss",
        None,
        ("mem_load_uops_retired.l1_miss",),
        intel=(0x08D1,),
    ),
    Known(
        "mem_load_retired.l3_miss",
        None,
        (
            *("mem_load_uops_retired.l3_miss", "mem_load_uops_retired.llc_miss"),
            "mem_load_retired.llc_miss",
        ),
        intel=(0x20D1,),
    ),
    Known("mem_trans_retired.load_latency_gt_4", intel=((0x01CD, 4),)),
    Known("frontend_retired.l1i_miss", intel=((0x01C6, 0x12),)),
    Known("br_misp_retired.cond", intel=(0x11C5,)),
    Known("br_misp_retired.conditional"),
    Known("br_misp_retired.indirect", intel=(0x80C5,)),
    Known(
        "branch-misses",
        None,
        (
            *("br_misp_retired.all_branches", "br_misp_retired.all_branches_pebs"),
            *("ex_ret_brn_misp", "retired_branch_instructions_mispredicted"),
        ),
        intel=(0xC5, 0x04C5),
        amd=(0xC3,),
        kernel=((_HARDWARE, 5),),
    ),
    Known(
        "ex_ret_msprd_brnch_instr_dir_msmtch",
        None,
        ("retired_mispredicted_branch_instructions_direction_mismatch",),
        amd=(0x1_0000_00C7,),
    ),
    Known("ex_ret_brn_cond_misp"),
    Known(
        "ex_ret_cond_misp",
        None,
        ("retired_conditional_branch_instructions_mispredicted",),
        amd=(0xD2,),
    ),
    Known("ex_ret_ind_brch_instr", None, ("retired_indirect_branch_instructions",), amd=(0xCC,)),
    Known(
        "ex_ret_brn_ind_misp",
        None,
        ("retired_indirect_branch_instructions_mispredicted",),
        amd=(0xCA,),
    ),
    Known("ibs_op"),
    Known("L1-dcache-loads", None, ("l1-dcache-load",), kernel=((_CACHE, 0x00000),)),
    Known("L1-dcache-load-misses", None, ("l1-dcache-load-miss",), kernel=((_CACHE, 0x10000),)),
    Known("L1-dcache-stores", None, ("l1-dcache-store",), kernel=((_CACHE, 0x00100),)),
    Known("L1-icache-load-misses", None, ("l1-icache-load-miss",), kernel=((_CACHE, 0x10001),)),
    Known("LLC-load-misses", None, ("llc-load-miss",), kernel=((_CACHE, 0x10002),)),
)
_BY_NAME = {name: row for row in KNOWN for name in (row.name.lower(), *row.spellings)}
_BY_CODE = {
    vendor: {
        (code if isinstance(code, tuple) else (code, 0)): row
        for row in KNOWN
        for code in getattr(row, vendor.lower())
    }
    for vendor in ("Intel", "AMD")
}
_BY_KERNEL = {key: row for row in KNOWN for key in row.kernel}
VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}


@dataclass(frozen=True)
class Attributes:
    """What perf recorded of an event besides its name; None and 0 where it does not say.

    Attributes:
      type, config, config1: of struct perf_event_attr.
      precise: precise_ip: how precisely samples are attributed, 0 to 3.
      fields: what samples hold, such as "DATA_SRC".
      branches: which branches the stacks hold, such as "ANY"; empty when it does not say.
    """

    type: int
    config: int = 0
    config1: int = 0
    precise: int = 0
    fields: frozenset[str] = frozenset()
    branches: frozenset[str] = frozenset()

    @property
    def all_branches(self) -> bool:
        """Whether all taken branches are in the stacks, so that code between two of them ran."""
        some = {"CALL_STACK", "IN_TX", "NO_TX", "ABORT_TX"}
        return not self.branches or ("ANY" in self.branches and self.branches.isdisjoint(some))


@dataclass
class Facts:
    """What a recording says of itself.

    Attributes:
      vendor: "Intel", "AMD" or "other"; empty when it does not say.
      pmus: names of kinds of counters, by the type that the kernel gave them.
      events: by perf's name of the event, with its modifiers.
    """

    vendor: str = ""
    pmus: dict[int, str] = field(default_factory=dict)
    events: dict[str, Attributes] = field(default_factory=dict)

    def of(self, printed: str) -> Attributes | None:
        """The attributes of an event, if known; perf may list it with other modifiers."""
        base = _Spelling.of(printed).base
        alike = {one for name, one in self.events.items() if _Spelling.of(name).base == base}
        return self.events.get(printed) or (alike.pop() if len(alike) == 1 else None)

    def read(self, line: str) -> None:
        """Takes what a line of `perf evlist -v` or of `perf script --header` says, if anything."""
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


# Of 64 bits.
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
    """What an event is.

    Attributes:
      name: `Known.name`; of an unknown event perf's name without modifiers.
      known: whether it is known what it counts.
      precise: whether each sample is attributed to the instruction that caused it.
      cores: the kind of cores whose counters they are, on processors that have two; else empty.
      levels: the privilege levels that are counted: of "ukh".
    """

    name: str
    known: Known | None
    precise: bool
    cores: str
    levels: frozenset[str]


# perf's modifiers after the last colon or slash, and libpfm's attributes, which are no event.
_MODIFIERS = re.compile(r"[ukhHGpPSDWebIR]*")
_ATTRIBUTES = {"u", "k", "h", "mh", "mg", "excl", "pinned", "precise", "e", "i", "intx", "intxcp"}
# The cores' counters, whose codes are in the table.
_CORES = ("cpu", "cpu_core", "cpu_atom")
_RAW_NAME = re.compile(r"(?:r|raw 0x)([0-9a-f]{1,16})", re.IGNORECASE)


def identify(printed: str, facts: Facts | None = None) -> Identity:
    """What the event is that perf calls `printed`.

    The code that perf recorded decides; where it is not known, or not in the table, the name does.
    """
    facts = facts or Facts()
    attributes = facts.of(printed)
    spelling = _Spelling.of(printed)
    by_name = _BY_NAME.get(spelling.name)
    coded = list(_by_code(spelling, attributes, facts))
    known = by_name if by_name in coded or not coded else None
    if coded and known is None and len(coded) == 1:
        known = coded[0]
    if by_name is None and attributes is not None and _is_ibs(attributes, facts):
        known = _BY_NAME["ibs_op"]
    precise = attributes.precise > 0 if attributes is not None else spelling.precise
    name = known.name if known else spelling.base
    if known is None and name.lower() in _BY_NAME:
        # It has that name, and the code of another event.
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
      base: without modifiers.
      name: the event alone, in small letters, with dots between its parts; empty for a mere code.
      cores: as of `Identity`.
      code: as the name has it, with the second register; None when it has none.
      precise, levels: as the modifiers say.
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
        # Of several words the others are terms such as "percore".
        known = [word for word in named if _plain(word) in _BY_NAME or _RAW_NAME.fullmatch(word)]
        numbers = {word: _number(value) for word, value in terms if re.fullmatch(_NUMBER, value)}
        # Without a PMU the event itself is in its place, as in "LLC-load-misses/period=1009/u".
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
    """An event's name as the table has it; libpfm puts a colon between its parts."""
    return name.lower().replace(":", ".")


def _composed(numbers: dict[str, int]) -> tuple[int, int]:
    """The code that the terms of a PMU's event make, with the second register."""
    event = numbers.get("event", 0)
    code = numbers.get("config", 0) | event & 0xFF | numbers.get("umask", 0) << 8
    # Where AMD has the rest of a number, and both have what changes an event's meaning.
    code |= event >> 8 << 32 | numbers.get("edge", 0) << 18 | numbers.get("any", 0) << 21
    code |= numbers.get("inv", 0) << 23 | numbers.get("cmask", 0) << 24
    return code, numbers.get("config1", 0) or numbers.get("ldlat", 0) or numbers.get("frontend", 0)


def _is_ibs(attributes: Attributes, facts: Facts) -> bool:
    return facts.pmus.get(attributes.type) == "ibs_op"


def _by_code(spelling: _Spelling, attributes: Attributes | None, facts: Facts) -> Iterator[Known]:
    """The events that the recorded code may be of; where the maker is not known, those of each."""
    code = spelling.code
    if attributes is not None:
        # On processors with two kinds of cores the upper half says which.
        row = _BY_KERNEL.get((attributes.type, attributes.config & 0xFFFF_FFFF))
        if row is not None:
            yield row
        pmu = facts.pmus.get(attributes.type, "cpu" if attributes.type == _RAW else "")
        if pmu not in _CORES:
            return
        code = attributes.config, attributes.config1
    if code is None:
        return
    found = []
    for vendor in [facts.vendor] if facts.vendor else VENDORS.values():
        row = _BY_CODE.get(vendor, {}).get(code)
        if row is not None and row not in found:
            found.append(row)
    yield from found


def unit_of(name: str) -> Unit | None:
    """What branch stacks taken at an event are scaled by; None when they cannot be."""
    row = _BY_NAME.get(name.lower())
    return row.unit if row else None


def is_known(name: str) -> bool:
    """Whether it is known what an event of that name counts."""
    return name.lower() in _BY_NAME
