# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From instruction addresses to the source locations that LLVM's sample profiles are keyed by."""

import contextlib
import json
import os
import re
import subprocess
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
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.symbol_names import canonical_name, is_part

# The base discriminator in a flow-sensitive one (llvm/Support/Discriminator.h).
_BASE_BITS = 0xFF

# Of a binary's functions, before it is run.
_ENTRIES_LOOKED_AT = 5000

# A text profile cannot hold a name that starts like another kind of line, or reads like two.
_UNREPRESENTABLE = re.compile(r"[\d\s#!\[]|.*(\n|:\d+\s)", re.DOTALL)


class Line(NamedTuple):
    """A source line of a function.

    Attributes:
      offset: lines from the function's first line, modulo 2**16; LLVM's line offset.
      discriminator: base discriminator, which tells apart the blocks of one line.
    """

    offset: int
    discriminator: int


class CallSite(NamedTuple):
    """A call that was inlined: its line in the caller, and the callee's linkage name."""

    line: Line
    callee: str


class DeclaredAt(NamedTuple):
    """Where a function is: the file, and the line that line offsets are counted from."""

    file: str
    line: int


class Location(NamedTuple):
    """Where an instruction comes from.

    Attributes:
      function: linkage name of the function it is in, in the machine code's sense.
      call_sites: the inlined calls down to it, outermost first.
      line: its line in the innermost callee.
      duplication: how many copies of the instruction the optimiser made, such as by unrolling.
      copy: with flow-sensitive discriminators, which of the copies in different blocks it is in.
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
      locations: by address; instructions without one (line 0, no debug info) are absent.
      entries: by the address of a function's first instruction, the function's linkage name.
      sources: by linkage name, where each function of the locations is, or the first of several.
      shared: linkage names of several functions, such as static ones of different files.
      undescribed: addresses in functions without debug info (other instructions without a location
        were given none by the optimiser).
      unlocated: names of the functions of instructions without a location.
    """

    locations: dict[int, Location]
    entries: dict[int, str]
    sources: dict[str, DeclaredAt] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    undescribed: set[int] = field(default_factory=set)
    unlocated: set[str] = field(default_factory=set)

    def add_source(self, name: str, source: DeclaredAt) -> None:
        """Notes where a function of that name is."""
        known = self.sources.setdefault(name, source)
        if known != source and not _same_place(known, source):
            self.shared.add(name)


def _same_place(one: DeclaredAt, other: DeclaredAt) -> bool:
    """Whether both are one place: compilations in different folders name a header differently."""
    return one.line == other.line and os.path.normpath(one.file) == os.path.normpath(other.file)


def decode_discriminator(discriminator: int) -> tuple[int, int]:
    """Splits a DWARF discriminator into base discriminator and duplication factor.

    The encoding is of llvm/Support/Discriminator.h: components one after the other from the lowest
    bit; a single 1 bit is an absent component, otherwise bit 0 is 0 and 5 bits follow, and 7 more
    when bit 6 says so. An absent duplication factor is 1.
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
    """Line, duplication factor and copy of one frame; None when it has no line.

    Without the function's own first line (-gline-tables-only) there is no offset either.
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
    """The location of an inline stack (innermost first); None when a frame has no line."""
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
    """What llvm-symbolizer prints; the reader counts the addresses that it got an answer for."""

    lines: Iterator[str]
    answered: int = 0


@contextlib.contextmanager
def _symbolizer(binary: Path, addresses: Sequence[int], *style: str) -> Iterator[_Answers]:
    """Asks llvm-symbolizer for the inline stacks of all addresses.

    Raises:
      BinaryError: it ended before all were answered.
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
        with subprocess.Popen(
            command,
            stdin=questions,
            stdout=subprocess.PIPE,
            stderr=messages,
            encoding="utf-8",
            errors="surrogateescape",
        ) as process:
            assert process.stdout is not None
            answers = _Answers(process.stdout)
            try:
                yield answers
            except BaseException:
                process.kill()
                raise
        if answers.answered < len(addresses):
            messages.seek(0)
            raise BinaryError(
                f"{binary}: llvm-symbolizer ended with status {process.returncode} after "
                f"{answers.answered} of {len(addresses)} addresses: "
                f"{messages.read().strip()[-500:]}"
            )


def symbolize(binary: Path, addresses: Iterable[int], known: Symbols | None = None) -> Symbols:
    """Finds the source location of each of `addresses`, link-time addresses in `binary`.

    Each address is resolved once, all by one llvm-symbolizer.

    Args:
      known: symbols of other addresses, which these are added to; there may be none then.

    Raises:
      BinaryError: llvm-symbolizer failed, or none of the addresses has a location.
    """
    wanted = sorted(set(addresses))
    flow_sensitive = has_flow_sensitive_discriminators(binary)
    symbols = known or Symbols({}, {})
    # Equal locations share one object: there are many more instructions than lines.
    shared: dict[Any, Any] = {}
    with _symbolizer(binary, wanted, "--output-style=JSON") as answers:
        for address, answer in zip(wanted, answers.lines, strict=False):
            try:
                document = json.loads(answer)
            except json.JSONDecodeError:
                break  # It died while it wrote.
            if "Error" in document:
                raise BinaryError(f"{binary}: llvm-symbolizer: {document['Error']['Message']}")
            answers.answered += 1
            frames = document["Symbol"]
            holder = frames[-1] if frames else None
            if holder is None or not holder["StartLine"]:
                symbols.undescribed.add(address)
            if holder is None:
                continue
            # A jump to or from a function's cold part is no entry of the function.
            raw_name = holder["FunctionName"]
            if holder["StartAddress"] == f"{address:#x}" and not is_part(raw_name):
                name = canonical_name(raw_name)
                if _representable(name):
                    symbols.entries[address] = name
            location = _location(frames, flow_sensitive)
            if location is None:
                symbols.unlocated.update(canonical_name(frame["FunctionName"]) for frame in frames)
                continue
            symbols.locations[address] = shared.setdefault(location, location)
            for frame in frames:
                name = canonical_name(frame["FunctionName"])
                file = frame["StartFileName"] or frame["FileName"]
                symbols.add_source(name, DeclaredAt(file, frame["StartLine"]))
    if wanted and not symbols.locations:
        raise BinaryError(
            f"{binary}: none of its {len(wanted)} instructions has a source location "
            f"(stripped, or line tables only); compile it with {PROFILING_FLAGS}"
        )
    return symbols


def require_locations(binary: Path) -> None:
    """Checks that the debug info of `binary` locates functions, before a run that takes long.

    Raises:
      BinaryError: none of them, as with -gline-tables-only alone; or llvm-symbolizer failed.
    """
    with open_elf(binary) as file:
        entries = [
            symbol.address
            for symbol in read_symbols(file, ".symtab")
            if symbol.kind == STT_FUNC and 0 < symbol.section < SHN_LORESERVE
        ]
    # Some are enough: even one function in a thousand with debug info is among them.
    symbolize(binary, entries[:: len(entries) // _ENTRIES_LOOKED_AT + 1])


def located_functions(binary: Path, addresses: Iterable[int], known: Symbols) -> set[str]:
    """Names of the functions that instructions at `addresses` are of, inlined ones included.

    Names that are those of other functions of `known`, too, are added to its shared ones.

    Of instructions that a profile could say nothing of, having no source location, nothing is said
    here. Takes half the time of `symbolize` and little memory: for the many functions of a large
    program that did not run.

    Raises:
      BinaryError: llvm-symbolizer failed.
    """
    wanted = sorted(set(addresses))
    found: set[str] = set()
    seen: set[tuple[tuple[str, str, str], ...]] = set()
    sources = Symbols({}, {}, known.sources.copy(), known.shared)
    with _symbolizer(binary, wanted, "--output-style=LLVM", "--verbose") as answers:
        frames: list[tuple[str, str, str]] = []  # Name, file and first line.
        name = file = first_line = ""
        lines = 0  # Of the frames, those known: a line and a first line each.
        for line in answers.lines:
            if line == "\n":
                answers.answered += 1
                stack = tuple(frames)
                if stack not in seen and lines == 2 * len(frames):
                    seen.add(stack)
                    canonical = [canonical_name(name) for name, _, _ in frames]
                    if all(map(_representable, canonical)):
                        found.update(canonical)
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
                # The last of a frame that is always there.
                lines += line != "  Line: 0\n"
                frames.append((name, file, first_line))
                first_line = "0"
    return found
