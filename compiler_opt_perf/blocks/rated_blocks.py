# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepares blocks that are measured with known miss rates and mispredict rates.

The harness is part of the block's code. It loads each pointer that rated_block.h chooses from a
list in the first-level cache. Then a jump to the next instruction is mispredicted at a known rate.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import iced_x86
from iced_x86 import MemorySizeExt, Mnemonic, OpAccess, OpKind, Register, RegisterExt

from compiler_opt_perf.blocks.block_code import MOST_BYTES, Block, request
from compiler_opt_perf.run.seeds import derive_seed

#: Levels in which missing loads find their data, in the order of measure_blocks.c.
LEVELS = ("l2", "l3", "memory")
#: Reasons why a block cannot be measured at known rates.
NO_SOURCE, TOO_FEW_COPIES = "no load whose address can be chosen", "too large for the first level"
# The most cache lines of a pointer, pointers of a block, and lines of both loops: half of the
# first-level cache.
_MOST_LINES, _MOST_SOURCES, _HOT_LINES = 8, 8, 256
_LINE = 64
# Numbers of copies: the shorter loop must fill the core's reorder window of some 250 to 500
# instructions, and rates are multiples of 1 / copies.
_WINDOW, _LEAST_WINDOW, _FEWEST, _MOST_COPIES = 512, 320, 16, 128
_POINTER_BYTES = 8
_READS = {OpAccess.READ, OpAccess.COND_READ, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE}
_ONLY_READS = {OpAccess.READ, OpAccess.COND_READ}
_ONLY_COMPARE = {Mnemonic.CMP, Mnemonic.TEST}

# A value: the register that holds it, or its root, when the block begins; then the displacement of
# each load that leads to it.
_Value = tuple[Any, ...]


@dataclass
class _Accesses:
    """A block's accesses through one pointer.

    Attributes:
      places: in order: instruction, offset from the pointer, size in bytes, whether it reads,
        whether it writes.
      is_more: whether the pointer has other uses, which the harness cannot follow.
    """

    places: list[tuple[int, int, int, bool, bool]] = field(default_factory=list)
    is_more: bool = False

    def lines(self) -> tuple[int, int]:
        """The first accessed cache line, relative to the pointer, and the number of lines."""
        first = min(start // _LINE for _, start, *_ in self.places)
        last = max((start + size - 1) // _LINE for _, start, size, *_ in self.places)
        return first, last - first + 1

    def misses(self) -> set[int]:
        """The instructions that first touch a line by a load; empty if a store does first."""
        seen: set[int] = set()
        found = set()
        for number, start, size, reads, _ in self.places:
            lines = set(range(start // _LINE, (start + size - 1) // _LINE + 1)) - seen
            if lines and not reads:
                return set()
            if lines:
                found.add(number)
            seen |= lines
        return found


@dataclass(frozen=True)
class ChosenPointer:
    """A pointer that rated_block.h chooses anew in each copy of the block.

    Attributes:
      register: the register that holds it, or its root pointer, when the block begins.
      parent: index of the pointer through which it is loaded; None if it is in the list.
      delay: whether it is loaded in the copy before.
      offset: its offset in memory from the parent.
      first, lines: first cache line relative to the pointer, and number of lines.
      misses: instructions whose loads miss if the lines are cold.
    """

    register: int
    parent: int | None
    delay: bool
    offset: int
    first: int
    lines: int
    misses: frozenset[int]


class _Analysis:
    """Follows the pointers of a block.

    Attributes:
      values: register -> its value after the block, if that is a known value.
      accesses: value -> the block's accesses through it.
      made: register -> the values that its content was computed from.
    """

    def __init__(self, code: bytes):
        self.values: dict[int, _Value] = {}
        self.accesses: dict[_Value, _Accesses] = {}
        self.made: dict[int, frozenset[_Value]] = {}
        self._info = iced_x86.InstructionInfoFactory()
        for number, instruction in enumerate(iced_x86.Decoder(64, code)):
            self._add(number, instruction)

    def _value(self, register: int) -> _Value | None:
        if register in self.made:
            return None
        return self.values.get(register, (register,))

    def _accesses_of(self, value: _Value) -> _Accesses:
        return self.accesses.setdefault(value, _Accesses())

    def _spoil(self, register: int) -> None:
        """Marks the values in a register as used in ways that the harness cannot follow."""
        value = self._value(register)
        for origin in self.made.get(register, ()) if value is None else (value,):
            self._accesses_of(origin).is_more = True

    def _add(self, number: int, instruction: iced_x86.Instruction) -> None:
        info = self._info.info(instruction)
        memory = info.used_memory()
        full = RegisterExt.full_register
        bases = {part.base for part in memory if part.base == full(part.base)}
        in_addresses = {full(r) for part in memory for r in (part.base, part.index) if r}
        reads: set[int] = set()
        for part in info.used_registers():
            register = full(part.register)
            only_address = register in in_addresses and part.access in _ONLY_READS
            if part.access in _READS and not only_address:
                reads.add(register)
        for operand in range(instruction.op_count):
            if (
                instruction.op_kind(operand) == OpKind.REGISTER
                and info.op_access(operand) in _READS
            ):
                reads.add(full(instruction.op_register(operand)))
        lea = instruction.mnemonic == Mnemonic.LEA
        if lea:
            reads |= {full(r) for r in (instruction.memory_base, instruction.memory_index) if r}
        loaded = None
        for access in memory:
            size = MemorySizeExt.size(access.memory_size)
            value = self._value(full(access.base)) if access.base in bases else None
            repeats = instruction.has_rep_prefix or instruction.has_repne_prefix
            if value is None or access.index or not size or repeats:
                for register in (access.base, access.index):
                    if register and register != Register.RIP:
                        self._spoil(full(register))
                continue
            distance = access.displacement - (1 << 64) * (access.displacement >= 1 << 63)
            writes = access.access not in _ONLY_READS
            self._accesses_of(value).places.append(
                (number, distance, size, access.access in _READS, writes)
            )
            loaded = (*value, distance)
        stores = any(access.access not in _ONLY_READS for access in memory)
        if stores:
            for read in reads:
                self._spoil(read)
        self._write(instruction, info, reads, loaded)

    def _write(
        self, instruction: iced_x86.Instruction, info: Any, reads: set[int], loaded: _Value | None
    ) -> None:
        if instruction.mnemonic in _ONLY_COMPARE:
            return
        target = instruction.op0_register if instruction.op_count else Register.NONE
        if instruction.mnemonic == Mnemonic.MOV and RegisterExt.is_gpr64(target):
            value = None
            if instruction.op1_kind == OpKind.REGISTER:
                value = self._value(instruction.op1_register)
            elif instruction.op1_kind == OpKind.MEMORY:
                value = loaded
            if value is not None:
                self.values[target] = value
                self.made.pop(target, None)
                return
        origins: set[_Value] = set()
        for register in reads:
            value = self._value(register)
            origins |= self.made.get(register, frozenset()) if value is None else {value}
        for part in info.used_registers():
            if part.access not in _ONLY_READS:
                self.made[RegisterExt.full_register(part.register)] = frozenset(origins)


def sources_of(code: bytes) -> list[ChosenPointer]:
    """The pointers of a block that can be chosen, parents first."""
    found = _Analysis(code)
    numbers: dict[_Value, int] = {}
    sources: list[ChosenPointer] = []
    for value, uses in sorted(found.accesses.items(), key=lambda item: len(item[0])):
        if uses.is_more or not uses.places or not RegisterExt.is_gpr64(value[0]):
            continue
        if value[0] == Register.RSP or len(sources) == _MOST_SOURCES:
            continue
        first, lines = uses.lines()
        misses = uses.misses()
        parent = numbers.get(value[:-1]) if len(value) > 1 else None
        orphan = len(value) > 1 and (
            parent is None or _is_written(found.accesses[value[:-1]], value[-1])
        )
        if not misses or lines > _MOST_LINES or orphan:
            continue
        offset = value[-1] if len(value) > 1 else 0
        numbers[value] = len(sources)
        sources.append(
            ChosenPointer(value[0], parent, False, offset, first, lines, frozenset(misses))
        )
    # The block may load a root's register for the next copy through a chosen pointer.
    for value, number in list(numbers.items()):
        if len(value) > 1 or value[0] in found.made:
            continue
        left = found.values.get(value[0], value)
        parent = numbers.get(left[:-1])
        if len(left) == 1 or parent is None or left in numbers:
            continue
        taken = any(
            item.delay and (item.parent, item.offset) == (parent, left[-1]) for item in sources
        )
        if not taken and not _is_written(found.accesses[left[:-1]], left[-1]):
            sources[number] = replace(sources[number], parent=parent, delay=True, offset=left[-1])
    return sources


def _is_written(uses: _Accesses, offset: int) -> bool:
    """Whether the block writes to the pointer stored at `offset`."""
    return any(
        writes and start < offset + _POINTER_BYTES and offset < start + size
        for _, start, size, _, writes in uses.places
    )


def _number(source: ChosenPointer) -> int:
    return int(RegisterExt.number(cast(Any, source.register)))


def _listed(source: ChosenPointer) -> bool:
    return source.parent is None


@dataclass(frozen=True)
class _Glue:
    """The harness code before each copy.

    Attributes:
      code: machine code.
      places: for each pointer, offset of the displacement and end of its load; -1 without a load.
      jump: the same for the comparison that the jump depends on.
    """

    code: bytes
    places: list[tuple[int, int]]
    jump: tuple[int, int]


def _glue(sources: Sequence[ChosenPointer]) -> _Glue:
    code = b""
    places = []
    for source in sources:
        if not _listed(source):
            places.append((-1, -1))
            continue
        # mov register, [rip + entry of the list]
        number = _number(source)
        code += bytes([0x48 | number >> 3 << 2, 0x8B, 0x05 | (number & 7) << 3]) + bytes(4)
        places.append((len(code) - 4, len(code)))
    # cmp byte [rip + entry of the list], 0; jne to the next instruction
    start = len(code)
    code += b"\x80\x3d" + bytes(5) + b"\x75\x00"
    return _Glue(code, places, (start + 2, start + 7))


@dataclass(frozen=True)
class Rates:
    """The wanted rates: level of LEVELS that misses go to, miss rate, mispredict rate."""

    level: str
    miss: float
    mispredict: float


def rated(block: Block, rates: Rates, seed: int) -> Block:
    """Prepares a block to be measured at known rates.

    Rates are rounded to multiples that the number of copies can have.

    Args:
      block: the block.
      rates: the wanted rates.
      seed: seed of the measurement.

    Returns:
      The block with harness code, `request` and `pmu`; or, if it cannot be measured at known rates,
      the unchanged block with the reason in `refused`.
    """
    line, reason = request(block.code)
    sources = sources_of(block.code) if line else []
    glue = _glue(sources)
    code = glue.code + block.code
    if not reason and len(code) > MOST_BYTES:
        reason = "too long"
    if not reason and not sources:
        reason = NO_SOURCE
    if reason:
        return replace(block, refused=reason)
    instructions = list(iced_x86.Decoder(64, code))
    jump = sum(map(_listed, sources)) + 1
    lines = sum(source.lines for source in sources)
    copies = max(_FEWEST, -(-_WINDOW // len(instructions)))
    copies = min(copies, _MOST_COPIES, _HOT_LINES // (2 * lines))
    if copies < _FEWEST or copies * len(instructions) < _LEAST_WINDOW:
        return replace(block, refused=TOO_FEW_COPIES)
    cold = round(rates.miss * copies)
    random_jumps = round(2 * rates.mispredict * copies)
    level = LEVELS.index(rates.level) + 1 if cold else 0
    operands = []
    for word in line.split()[1:]:
        place, end, target = map(int, word.split(":"))
        operands.append(f"{place + len(glue.code)}:{end + len(glue.code)}:{target}")
    head = f"{level} {copies} {cold} {random_jumps} {seed} {glue.jump[0]}:{glue.jump[1]}"
    described = [
        f"{-1 if source.parent is None else source.parent}:{source.delay:d}:{source.offset}:"
        f"{place}:{end}:{_number(source)}:{source.first}:{source.lines}"
        for source, (place, end) in zip(sources, glue.places, strict=True)
    ]
    missing = {jump + 1 + number for source in sources for number in source.misses}
    pmu = _known(instructions, missing, jump, cold / copies, random_jumps / (2 * copies), level)
    request_line = " ".join([code.hex(), *operands, "/", head, *described])
    return replace(block, code=code, request=request_line, pmu=pmu)


def _known(
    instructions: Sequence[iced_x86.Instruction],
    missing: set[int],
    jump: int,
    miss: float,
    mispredict: float,
    level: int,
) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    """The PMU inputs of a prepared block's instructions (docs/reference/formats.md)."""
    info = iced_x86.InstructionInfoFactory()
    loads = [
        any(part.access in _READS for part in info.info(instruction).used_memory())
        for instruction in instructions
    ]
    found: dict[str, tuple[float | None, ...]] = {}
    for number, name in enumerate(("l1_miss", "l2_miss", "l3_miss"), 1):
        share = miss if level >= number else 0.0
        found[name] = tuple(
            (share if place in missing else 0.0) if load else None
            for place, load in enumerate(loads)
        )
    found["mispredict"] = tuple(
        mispredict if place == jump else None for place in range(len(instructions))
    )
    return tuple(found.items())


def at_rates(
    blocks: Sequence[Block], misses: Sequence[float], mispredicts: Sequence[float], seed: int
) -> Iterator[Block]:
    """Yields each block prepared at each miss rate; level and mispredict rate are drawn.

    Duplicates are left out: a block that cannot be prepared, and equal rounded rates.

    Args:
      blocks: the blocks.
      misses: miss rates.
      mispredicts: mispredict rates to draw from.
      seed: seed of the draws.
    """
    for block in blocks:
        seen = set()
        for miss in misses:
            own = derive_seed(seed, "rated block", block.code.hex(), str(miss))
            drawn = random.Random(own)
            rates = Rates(drawn.choice(LEVELS), miss, drawn.choice(list(mispredicts)))
            measured = rated(block, rates, own % (1 << 62) + 1)
            key = (measured.refused, measured.pmu)
            if key not in seen:
                seen.add(key)
                yield measured
