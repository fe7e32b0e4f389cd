# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code of a linked program: blocks, edges, calls, and the source location of instructions."""

import bisect
import itertools
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from compiler_opt_perf.binary.address_map import ANALYSIS_FLAGS, MappedFunction, read_address_map
from compiler_opt_perf.binary.disassembly import Kind, kind_of
from compiler_opt_perf.binary.elf import BinaryError, require_debug_info
from compiler_opt_perf.binary.symbolize import Location, canonical_name, symbolize
from compiler_opt_perf.execution.llvm import stock_tool

_INSTRUCTION = re.compile(r" *([0-9a-f]+):\s+(.*)")
_LEAVES = ("jmp", "ret")
# Bytes; blocks are aligned to 16 or 32.
_MOST_PADDING = 64
_TARGET = re.compile(r"\s0x([0-9a-f]+)(?: <|$)")


class Instruction(NamedTuple):
    """One machine instruction.

    Attributes:
      mnemonic: as llvm-objdump prints it, with prefixes.
      kind: what it can do.
      block: number of its block in the function.
      location: where it comes from; None when the optimiser left it no line.
    """

    mnemonic: str
    kind: Kind
    block: int
    location: Location | None


class Call(NamedTuple):
    """A call, or a jump to another function.

    Attributes:
      block: number of the block that calls.
      location: of the instruction; None when it has no line.
      callee: linkage name of a function of the program; None when the call is indirect.
    """

    block: int
    location: Location | None
    callee: str | None


@dataclass
class FunctionCode:
    """The machine code of a function; of several of one name, or of parts of one, together.

    Of several that are alike it is that of one.

    Attributes:
      entries: numbers of the blocks where calls enter.
      sizes: [B] instructions in each block.
      successors: [B] numbers of the blocks that follow each block in the function.
      instructions: by address.
      calls: of functions of the program, by address.
    """

    entries: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    successors: list[list[int]] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


class _Place(NamedTuple):
    """Where a block of the address map lies: first address, address behind it, function, number."""

    start: int
    end: int
    function: "_Function"
    block: int


class _Function:
    """A function while it is read.

    Attributes:
      code: what is read so far.
      starts: [B] addresses of the blocks of the address map.
    """

    def __init__(self) -> None:
        self.code = FunctionCode()
        self.starts: list[int] = []

    def add_blocks(self, binary: Path, part: MappedFunction) -> Iterator[_Place]:
        """Adds its blocks; returns where they lie."""
        if part.successors is None:
            raise BinaryError(
                f"{binary}: its address map does not say which blocks follow each other; "
                f"compile it with {ANALYSIS_FLAGS}"
            )
        numbers = {block_id: number for number, (_, _, block_id) in enumerate(part.blocks)}
        if part.blocks:
            self.code.entries.append(0)
        self.starts += [address for address, _, _ in part.blocks]
        self.code.sizes += [0] * len(part.blocks)
        for ways in part.successors:
            self.code.successors.append([numbers[target] for target, _ in ways])
        for address, size, block_id in part.blocks:
            if size:
                yield _Place(address, address + size, self, numbers[block_id])

    def add_instructions(
        self,
        block: int,
        lines: Sequence[tuple[int, str]],
        locations: Mapping[int, Location],
        entries: Mapping[int, str],
    ) -> None:
        """Adds a block's instructions, each given by address and text.

        A block of the address map may end in several jumps. What follows a conditional one is a
        block of its own here, for it runs less often.

        Args:
          entries: names of the program's functions by address.
        """
        code = self.code
        ways = list(code.successors[block])
        # Those that no jump so far leads to.
        remaining = ways
        for index, (address, text) in enumerate(lines):
            if index and lines[index - 1][1].startswith(_LEAVES):
                break  # Padding that does not run.
            mnemonic, _, operands = text.partition("#")[0].partition("\t")
            mnemonic, kind, location = mnemonic.strip(), kind_of(text), locations.get(address)
            code.sizes[block] += 1
            code.instructions.append(Instruction(mnemonic, kind, block, location))
            found = _TARGET.search("\t" + operands)
            target = int(found[1], 16) if found else None
            callee = entries.get(target) if target is not None else None
            followers = [way for way in ways if self.starts[way] == target]
            if "call" in mnemonic:
                if callee is not None or "*" in operands:
                    code.calls.append(Call(block, location, callee))
            elif kind & Kind.CONDITIONAL:
                if not followers:
                    # To another function.
                    followers = [self._new_block([])]
                    if callee is not None:
                        code.calls.append(Call(followers[0], location, callee))
                remaining = [way for way in remaining if way not in followers]
                if index + 1 < len(lines):
                    after = self._new_block(remaining)
                    code.successors[block] = [*followers, after]
                    block = after
                else:
                    code.successors[block] = [*followers, *remaining]
            elif "jmp" in mnemonic and target is not None:
                code.successors[block] = followers
                if callee is not None and not followers:
                    code.calls.append(Call(block, location, callee))
            elif "jmp" in mnemonic and not ways:
                # A jump out of a block that has successors is that of a switch.
                code.calls.append(Call(block, location, None))

    def _new_block(self, successors: list[int]) -> int:
        self.code.sizes.append(0)
        self.code.successors.append(successors)
        return len(self.code.sizes) - 1


@dataclass(frozen=True)
class ObjectCode:
    """The code of a linked program.

    Attributes:
      functions: by linkage name, without the suffixes of LLVM's copies and parts.
      names: of all functions of the program, read or not.
    """

    functions: Mapping[str, FunctionCode]
    names: frozenset[str]

    @classmethod
    def read(cls, binary: Path, wanted: Callable[[str], bool]) -> Self:
        """Reads those functions of a linked program whose names are wanted.

        Raises:
          BinaryError: it cannot be read, or has no address map with the blocks' successors.
          BinaryError: it has no debug info, or one of LLVM's tools refused it.
        """
        mapped = read_address_map(binary)
        require_debug_info(binary)
        entries = {function.entry: canonical_name(function.name) for function in mapped}
        functions: dict[str, list[_Function]] = {}
        places: list[_Place] = []
        for part in mapped:
            name = canonical_name(part.name)
            if wanted(name):
                function = _Function()
                functions.setdefault(name, []).append(function)
                places += function.add_blocks(binary, part)
        if not places:
            raise BinaryError(
                f"{binary}: has none of the functions that the profile has; is it the profiled "
                "program?"
            )
        places = _with_padding(places)
        lines: list[list[tuple[int, str]]] = [[] for _ in places]
        for address, text, index in _lines(binary, [(place.start, place.end) for place in places]):
            lines[index].append((address, text))
        addresses = (address for block in lines for address, _ in block)
        locations = symbolize(binary, addresses).locations
        for place, block in zip(places, lines, strict=True):
            place.function.add_instructions(place.block, block, locations, entries)
        found = {name: _joined([one.code for one in each]) for name, each in functions.items()}
        return cls(found, frozenset(entries.values()))


def _with_padding(places: Sequence[_Place]) -> list[_Place]:
    """The places by address, each with the padding up to the next block of the function.

    The address map leaves it out, but a block that does not end in a jump runs it.
    """
    ordered = sorted(places, key=lambda place: place.start)
    for index, (place, after) in enumerate(itertools.pairwise(ordered)):
        if after.function is place.function and after.start - place.end < _MOST_PADDING:
            ordered[index] = place._replace(end=after.start)
    return ordered


def _joined(parts: Sequence[FunctionCode]) -> FunctionCode:
    """Functions of one name together; one of those that are alike stands for all.

    A static function of a header is compiled in each file that includes it, and a profile does not
    tell the copies apart.
    """
    distinct: list[FunctionCode] = []
    for part in parts:
        if part not in distinct:
            distinct.append(part)
    if len(distinct) == 1:
        return distinct[0]
    joined = FunctionCode()
    for part in distinct:
        first = len(joined.sizes)
        joined.entries += [first + block for block in part.entries]
        joined.sizes += part.sizes
        joined.successors += [[first + block for block in ways] for ways in part.successors]
        joined.instructions += [one._replace(block=first + one.block) for one in part.instructions]
        joined.calls += [call._replace(block=first + call.block) for call in part.calls]
    return joined


def _lines(binary: Path, places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str, int]]:
    """Address and text of each instruction in `places`, and the number of the place.

    Args:
      places: first addresses and addresses behind, ascending.
    """
    starts = [start for start, _ in places]
    argv = [str(stock_tool("llvm-objdump")), "-d", "--no-show-raw-insn", str(binary)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            match = _INSTRUCTION.match(line)
            if match is None:
                continue
            address = int(match[1], 16)
            index = bisect.bisect_right(starts, address) - 1
            if index >= 0 and address < places[index][1]:
                yield address, match[2], index
    if process.returncode:
        raise BinaryError(f"{binary}: llvm-objdump failed with status {process.returncode}")
