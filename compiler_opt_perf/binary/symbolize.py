# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps instruction addresses to source locations, the keys of LLVM's sample profiles."""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from compiler_opt_perf.binary.elf import (
    PROFILING_FLAGS,
    SHN_LORESERVE,
    STT_FUNC,
    BinaryError,
    has_flow_sensitive_discriminators,
    open_elf,
    read_symbols,
)
from compiler_opt_perf.run.command import run_command, start_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.symbol_names import canonical_name, is_part

# The bits of the base discriminator in a flow-sensitive one (llvm/Support/Discriminator.h).
_BASE_BITS = 0xFF

# `require_locations` looks at about this many functions of a binary.
_MOST_ENTRIES_CHECKED = 5000

# A text profile cannot hold a name that begins like another kind of line, or reads like two lines.
_UNREPRESENTABLE = re.compile(r"[\d\s#!\[]|.*(\n|:\d+\s)", re.DOTALL)


class Line(NamedTuple):
    """A source line of a function.

    Attributes:
      offset: LLVM's line offset: lines from the function's first line, modulo 2**16.
      discriminator: base discriminator, which tells apart basic blocks of one line.
    """

    offset: int
    discriminator: int


class CallSite(NamedTuple):
    """An inlined call site: its line in the caller, and the callee's linkage name."""

    line: Line
    callee: str


class DeclaredAt(NamedTuple):
    """A function's declaration: its file, and the line that line offsets count from."""

    file: str
    line: int


class Location(NamedTuple):
    """The source location of an instruction.

    Attributes:
      function: linkage name of the machine function that holds it.
      call_sites: its inline stack, outermost call first.
      line: its line in the innermost callee.
      duplication: DWARF duplication factor: copies that the optimiser made, such as by unrolling.
      copy: higher bits of a flow-sensitive discriminator, which tell copies apart; 0 without them.
    """

    function: str
    call_sites: tuple[CallSite, ...]
    line: Line
    duplication: int
    copy: int = 0


@dataclass
class Symbols:
    """The source locations of a binary's instructions.

    Attributes:
      locations: location by address; instructions without one (line 0, no debug info) are absent.
      entries: linkage name by the address of a function's first instruction.
      sources: declaration by linkage name; the first one when several functions share a name.
      shared: linkage names that several functions have, such as static ones of different files.
      undescribed: addresses in functions without debug info. The optimiser removed the location of
        other instructions that have none.
      unlocated: names of functions that have instructions without a location.
    """

    locations: dict[int, Location]
    entries: dict[int, str]
    sources: dict[str, DeclaredAt] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    undescribed: set[int] = field(default_factory=set)
    unlocated: set[str] = field(default_factory=set)

    def add_source(self, name: str, source: DeclaredAt) -> None:
        """Adds the declaration of a function with that name."""
        known = self.sources.setdefault(name, source)
        if known != source and not _same_place(known, source):
            self.shared.add(name)


def _same_place(first: DeclaredAt, second: DeclaredAt) -> bool:
    """Whether both are one place: compilations in different folders spell a header differently."""
    return first.line == second.line and os.path.normpath(first.file) == os.path.normpath(
        second.file
    )


def decode_discriminator(discriminator: int) -> tuple[int, int]:
    """Splits a DWARF discriminator into base discriminator and duplication factor.

    llvm/Support/Discriminator.h defines the encoding: components follow each other from the lowest
    bit. A single 1 bit is an absent component. Otherwise bit 0 is 0, 5 bits follow, and 7 more when
    bit 6 is set. An absent duplication factor is 1.
    """

    def component(bits: int) -> int:
        if bits & 1:
            return 0
        bits >>= 1
        low = bits & 0x1F
        return ((bits >> 1) & 0xFE0) | low if bits & 0x20 else low

    if discriminator & 1:
        rest = discriminator >> 1
    else:
        rest = discriminator >> (14 if discriminator & 0x40 else 7)
    return component(discriminator), component(rest) or 1


def _representable(name: str) -> bool:
    return bool(name) and not _UNREPRESENTABLE.match(name)


def _line(frame: dict[str, Any], flow_sensitive: bool) -> tuple[Line, int, int] | None:
    """Returns line, duplication factor and copy of one frame; None when it has no line.

    Without the function's first line (-gline-tables-only) there is no line offset.
    """
    if not frame["Line"] or not frame["StartLine"]:
        return None
    discriminator = frame["Discriminator"]
    if flow_sensitive:
        base, duplication = discriminator & _BASE_BITS, 1
        copy = discriminator & ~_BASE_BITS
    else:
        (base, duplication), copy = decode_discriminator(discriminator), 0
    return Line((frame["Line"] - frame["StartLine"]) & 0xFFFF, base), duplication, copy


def _location(frames: list[dict[str, Any]], flow_sensitive: bool) -> Location | None:
    """Returns the location of an inline stack (innermost first); None if a frame has no line."""
    names = [canonical_name(frame["FunctionName"]) for frame in frames]
    lines = [_line(frame, flow_sensitive) for frame in frames]
    if not all(map(_representable, names)):
        return None
    places = []
    for line in lines:
        if line is None:
            return None
        places.append(line)
    call_sites = tuple(
        CallSite(places[depth][0], names[depth - 1]) for depth in range(len(frames) - 1, 0, -1)
    )
    return Location(names[-1], call_sites, *places[0])


@dataclass
class _Answers:
    """Output lines of llvm-symbolizer; the reader counts the addresses answered."""

    lines: Iterator[str]
    answered: int = 0


@contextlib.contextmanager
def _symbolizer(binary: Path, addresses: Sequence[int], *style: str) -> Iterator[_Answers]:
    """Runs llvm-symbolizer for the inline stacks of all addresses.

    Raises:
      BinaryError: llvm-symbolizer ended before it had answered all.
    """
    command = [
        str(stock_tool("llvm-symbolizer")),
        f"--obj={binary}",
        *style,
        "--inlines",
        "--no-demangle",
        "--functions=linkage",
    ]
    # Questions in a file, answers by a pipe: neither side waits for the other.
    with tempfile.TemporaryFile("w+") as questions, tempfile.TemporaryFile("w+") as messages:
        questions.writelines(f"{address:#x}\n" for address in addresses)
        questions.seek(0)
        with start_command(
            command, stdin=questions, stderr=messages, errors="surrogateescape"
        ) as symbolizer:
            assert symbolizer.process.stdout is not None
            answers = _Answers(symbolizer.process.stdout)
            yield answers
            done = symbolizer.wait()
        if answers.answered < len(addresses):
            messages.seek(0)
            raise BinaryError(
                f"{binary}: llvm-symbolizer ended with status {done.status} after "
                f"{answers.answered} of {len(addresses)} addresses: "
                f"{messages.read().strip()[-500:]}"
            )


def _origin(frames: list[dict[str, Any]]) -> str:
    """The function that the part at the end of an inline stack was extracted from."""
    return canonical_name(frames[-1]["FunctionName"])


def _declarations(binary: Path, names: set[str]) -> dict[str, list[DeclaredAt]]:
    """Where the debug info declares functions of these names; several may share one."""
    found: dict[str, list[DeclaredAt]] = {}
    if not names:
        return found
    wanted = [f"--name={name}" for name in sorted(names)]
    listing = run_command([stock_tool("llvm-dwarfdump"), *wanted, binary]).stdout
    for entry in listing.split("\n\n"):
        fields = dict(re.findall(r'^ +DW_AT_(\w+)\t\("?(.*?)"?\)$', entry, re.MULTILINE))
        name = fields.get("linkage_name", fields.get("name", ""))
        if name in names and "decl_line" in fields:
            place = DeclaredAt(fields.get("decl_file", ""), int(fields["decl_line"]))
            found.setdefault(name, []).append(place)
    return found


def _add(
    symbols: Symbols, address: int, frames: list[dict[str, Any]], flow_sensitive: bool
) -> Location | None:
    """Adds what an address's inline stack (innermost first) tells; returns its location."""
    holder = frames[-1] if frames else None
    if holder is None or not holder["StartLine"]:
        symbols.undescribed.add(address)
    if holder is None:
        return None
    # A jump to a function's cold part does not enter the function.
    raw_name = holder["FunctionName"]
    if holder["StartAddress"] == f"{address:#x}" and not is_part(raw_name):
        name = canonical_name(raw_name)
        if _representable(name):
            symbols.entries[address] = name
    location = _location(frames, flow_sensitive)
    if location is None:
        symbols.unlocated.update(canonical_name(frame["FunctionName"]) for frame in frames)
        return None
    for frame in frames:
        name = canonical_name(frame["FunctionName"])
        file = frame["StartFileName"] or frame["FileName"]
        symbols.add_source(name, DeclaredAt(file, frame["StartLine"]))
    return location


def symbolize(binary: Path, addresses: Iterable[int], known: Symbols | None = None) -> Symbols:
    """Finds the source locations of `addresses`, link-time addresses in `binary`.

    Args:
      known: symbols of other addresses; the new ones are added to them.

    Raises:
      BinaryError: llvm-symbolizer failed, or the result has no location at all.
    """
    queried = sorted(set(addresses))
    flow_sensitive = has_flow_sensitive_discriminators(binary)
    symbols = known or Symbols({}, {})
    # Equal locations share one object: a line has many instructions.
    unique: dict[Location, Location] = {}
    parts: list[tuple[int, list[dict[str, Any]]]] = []

    def add(address: int, frames: list[dict[str, Any]]) -> None:
        location = _add(symbols, address, frames, flow_sensitive)
        if location is not None:
            symbols.locations[address] = unique.setdefault(location, location)

    with _symbolizer(binary, queried, "--output-style=JSON") as answers:
        for address, answer in zip(queried, answers.lines, strict=False):
            try:
                document = json.loads(answer)
            except json.JSONDecodeError:
                break  # llvm-symbolizer died within a line.
            if "Error" in document:
                raise BinaryError(f"{binary}: llvm-symbolizer: {document['Error']['Message']}")
            answers.answered += 1
            frames = document["Symbol"]
            if frames and not frames[-1]["StartLine"] and is_part(frames[-1]["FunctionName"]):
                parts.append((address, frames))
            else:
                add(address, frames)
    declared = _declarations(binary, {_origin(frames) for _, frames in parts})
    for address, frames in parts:
        # An extracted part has no first line, but its code has the lines that it had before.
        places = declared.get(_origin(frames), [])
        holder = frames[-1]
        for place in sorted(places, key=lambda place: place.file != holder["FileName"])[:1]:
            holder |= {"StartFileName": place.file, "StartLine": place.line}
        add(address, frames)
    if queried and not symbols.locations:
        raise BinaryError(
            f"{binary}: none of its {len(queried)} instructions has a source location "
            f"(stripped, or line tables only); compile it with {PROFILING_FLAGS}"
        )
    return symbols


def require_locations(binary: Path) -> None:
    """Checks before a long run that the debug info of `binary` locates functions.

    Raises:
      BinaryError: it locates none, as with -gline-tables-only alone, or llvm-symbolizer failed.
    """
    with open_elf(binary) as file:
        entries = [
            symbol.address
            for symbol in read_symbols(file, ".symtab")
            if symbol.kind == STT_FUNC and 0 < symbol.section < SHN_LORESERVE
        ]
    # A sample is enough: it finds debug info that only one function in a thousand has.
    symbolize(binary, entries[:: len(entries) // _MOST_ENTRIES_CHECKED + 1])


def located_functions(binary: Path, addresses: Iterable[int], known: Symbols) -> set[str]:
    """Returns the names of the functions at `addresses`, including inlined ones.

    Instructions without a source location are skipped. A name that another function of `known` has
    is added to `known.shared`.

    This takes half the time of `symbolize` and little memory. It serves the many functions of a
    large program that did not run.

    Raises:
      BinaryError: llvm-symbolizer failed.
    """
    queried = sorted(set(addresses))
    functions: set[str] = set()
    seen: set[tuple[tuple[str, str, str], ...]] = set()
    sources = Symbols({}, {}, known.sources.copy(), known.shared)
    with _symbolizer(binary, queried, "--output-style=LLVM", "--verbose") as answers:
        frames: list[tuple[str, str, str]] = []  # Name, file and first line.
        name = file = first_line = ""
        lines = 0  # Known line numbers of the frames: a frame has a line and a first line.
        for line in answers.lines:
            if line == "\n":
                answers.answered += 1
                stack = tuple(frames)
                if stack not in seen and lines == 2 * len(frames):
                    seen.add(stack)
                    canonical = [canonical_name(name) for name, _, _ in frames]
                    if all(map(_representable, canonical)):
                        functions.update(canonical)
                        for name, (_, file, first_line) in zip(canonical, frames, strict=True):
                            sources.add_source(name, DeclaredAt(file, int(first_line)))
                frames, lines = [], 0
            elif not line.startswith("  "):
                name, file = line[:-1], ""
            elif line.startswith("  Function start filename: "):
                file = line[27:-1]
            elif line.startswith("  Function start line: "):
                first_line = line[23:-1]
                lines += first_line != "0"
            elif line.startswith("  Line: "):
                # The last field that every frame has.
                lines += line != "  Line: 0\n"
                frames.append((name, file, first_line))
                first_line = "0"
    return functions
