# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code of a linked program: blocks, edges, calls, and the source location of instructions."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from compiler_opt_perf.binary.address_map import MappedFunction, read_address_map, successors_of
from compiler_opt_perf.binary.disassembly import Instruction as Decoded
from compiler_opt_perf.binary.disassembly import Kind, MachineCode
from compiler_opt_perf.binary.elf import BinaryError, require_debug_info
from compiler_opt_perf.binary.symbolize import Location, symbolize
from compiler_opt_perf.execution.symbol_names import canonical_name

# Bytes; blocks are aligned to 16 or 32.
_MOST_PADDING = 64


class Instruction(NamedTuple):
    """One machine instruction.

    Attributes:
      mnemonic: in AT&T syntax, with prefixes.
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
        successors = successors_of(part, binary)
        numbers = {block_id: number for number, (_, _, block_id) in enumerate(part.blocks)}
        if part.blocks:
            self.code.entries.append(0)
        self.starts += [address for address, _, _ in part.blocks]
        self.code.sizes += [0] * len(part.blocks)
        for ways in successors:
            self.code.successors.append([numbers[target] for target, _ in ways])
        for address, size, block_id in part.blocks:
            if size:
                yield _Place(address, address + size, self, numbers[block_id])

    def add_instructions(
        self,
        block: int,
        decoded: Sequence[Decoded],
        locations: Mapping[int, Location],
        entries: Mapping[int, str],
    ) -> None:
        """Adds a block's instructions.

        A block of the address map may end in several jumps. What follows a conditional one is a
        block of its own here, for it runs less often.

        Args:
          entries: names of the program's functions by address.
        """
        code = self.code
        ways = code.successors[block]
        # Those that no jump so far leads to.
        remaining = ways
        for index, one in enumerate(decoded):
            location = locations.get(one.address)
            code.sizes[block] += 1
            code.instructions.append(Instruction(one.mnemonic, one.kind, block, location))
            callee = entries.get(one.target) if one.target is not None else None
            indirect = Kind.INDIRECT in one.kind
            followers = [way for way in ways if self.starts[way] == one.target]
            if Kind.CALL in one.kind:
                if callee is not None or indirect:
                    code.calls.append(Call(block, location, callee))
            elif Kind.CONDITIONAL in one.kind:
                if not followers:
                    # To another function.
                    followers = [self._new_block([])]
                    if callee is not None:
                        code.calls.append(Call(followers[0], location, callee))
                remaining = [way for way in remaining if way not in followers]
                if index + 1 < len(decoded):
                    after = self._new_block(remaining)
                    code.successors[block] = [*followers, after]
                    block = after
                else:
                    code.successors[block] = [*followers, *remaining]
            elif one.leaves:
                if one.target is not None:
                    code.successors[block] = followers
                    if callee is not None and not followers:
                        code.calls.append(Call(block, location, callee))
                elif indirect and not ways:
                    # A jump out of a block that has successors is that of a switch.
                    code.calls.append(Call(block, location, None))
                return  # What is left is padding that does not run.

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
          BinaryError: it cannot be read, has no address map with the blocks' successors, no debug
            info or none of these functions.
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
        machine_code = MachineCode.read(binary)
        decoded = [list(machine_code.instructions(place.start, place.end)) for place in places]
        addresses = (one.address for block in decoded for one in block)
        locations = symbolize(binary, addresses).locations
        for place, block in zip(places, decoded, strict=True):
            place.function.add_instructions(place.block, block, locations, entries)
        found = {name: _joined([one.code for one in each]) for name, each in functions.items()}
        return cls(found, frozenset(entries.values()))


def _with_padding(places: Sequence[_Place]) -> list[_Place]:
    """The places by address, each with the padding up to the next block of the function.

    The address map leaves it out, but a block that does not end in a jump runs it. No place reaches
    into the next one.
    """
    ordered = sorted(places, key=lambda place: place.start)
    for index, (place, after) in enumerate(itertools.pairwise(ordered)):
        if after.function is place.function and after.start - place.end < _MOST_PADDING:
            ordered[index] = place._replace(end=after.start)
        else:
            ordered[index] = place._replace(end=min(place.end, after.start))
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
