# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code of a linked program: blocks, edges, calls, and the source location of instructions."""

import bisect
import re
import subprocess
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.pmu.binary import require_debug_info
from compiler_opt_perf.pmu.disassembly import Kind, kind_of
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.symbolize import Location, canonical_name, symbolize
from compiler_opt_perf.traces.block_table import MappedFunction, read_address_map
from compiler_opt_perf.traces.errors import TraceError
from compiler_opt_perf.traces.synthesis import ANALYSIS_FLAGS

_INSTRUCTION = re.compile(r" *([0-9a-f]+):\s+(.*)")
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
    """Where a block lies: first address, address behind it, function and number."""

    start: int
    end: int
    code: FunctionCode
    block: int


@dataclass(frozen=True)
class ObjectCode:
    """The code of a linked program.

    Attributes:
      functions: by linkage name, without the suffixes of LLVM's copies and parts.
    """

    functions: Mapping[str, FunctionCode]

    @classmethod
    def read(cls, binary: Path, wanted: Container[str]) -> Self:
        """Reads those functions of a linked program whose names are `wanted`.

        Raises:
          TraceError: it cannot be read, or has no address map with the blocks' successors.
          PmuError: it has no debug info, or one of LLVM's tools refused it.
        """
        mapped = read_address_map(binary)
        require_debug_info(binary)
        entries = {function.entry: canonical_name(function.name) for function in mapped}
        functions: dict[str, FunctionCode] = {}
        places: list[_Place] = []
        for part in mapped:
            name = canonical_name(part.name)
            if name in wanted:
                places += _add_blocks(binary, functions.setdefault(name, FunctionCode()), part)
        if not places:
            raise PmuError(
                f"{binary}: has none of the functions that the profile has; is it the profiled "
                "program?"
            )
        places.sort()
        lines = list(_lines(binary, places))
        locations = symbolize(binary, (address for address, _, _ in lines)).locations
        for address, text, place in lines:
            code, block = place.code, place.block
            mnemonic, _, operands = text.partition("#")[0].partition("\t")
            location = locations.get(address)
            code.sizes[block] += 1
            code.instructions.append(Instruction(mnemonic.strip(), kind_of(text), block, location))
            # A jump out of a block that has successors is that of a switch.
            if "call" in mnemonic or ("jmp" in mnemonic and not code.successors[block]):
                target = _TARGET.search("\t" + operands)
                callee = entries.get(int(target[1], 16)) if target else None
                if callee is not None or "*" in operands:
                    code.calls.append(Call(block, location, callee))
        return cls(functions)


def _add_blocks(binary: Path, code: FunctionCode, part: MappedFunction) -> Iterator[_Place]:
    """Adds the blocks of a function of the address map; returns where they lie."""
    if part.successors is None:
        raise TraceError(
            f"{binary}: its address map does not say which blocks follow each other; "
            f"compile it with {ANALYSIS_FLAGS}"
        )
    first = len(code.sizes)
    numbers = {block_id: first + index for index, (_, _, block_id) in enumerate(part.blocks)}
    if part.blocks:
        code.entries.append(first)
    code.sizes += [0] * len(part.blocks)
    code.successors += [[numbers[target] for target, _ in ways] for ways in part.successors]
    for address, size, block_id in part.blocks:
        if size:
            yield _Place(address, address + size, code, numbers[block_id])


def _lines(binary: Path, places: Sequence[_Place]) -> Iterator[tuple[int, str, _Place]]:
    """Address, text and block of each instruction in `places`, which are in order."""
    starts = [place.start for place in places]
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
            if index >= 0 and address < places[index].end:
                yield address, match[2], places[index]
    if process.returncode:
        raise PmuError(f"{binary}: llvm-objdump failed with status {process.returncode}")
