# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the pointers of a block that the harness can choose, and the loads through them.

A pointer can be chosen if the block only loads, stores, compares and copies by its first value.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import iced_x86
from iced_x86 import MemorySizeExt, Mnemonic, OpAccess, OpKind, Register, RegisterExt

# The most cache lines of a pointer, and pointers of a block.
_MOST_LINES, _MOST_SOURCES = 8, 8
_LINE = 64
_POINTER_BYTES = 8
#: Kinds of access that read.
READS = {OpAccess.READ, OpAccess.COND_READ, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE}
_ONLY_READS = {OpAccess.READ, OpAccess.COND_READ}
_ONLY_COMPARE = {Mnemonic.CMP, Mnemonic.TEST}

# A value: the register that holds it, or its root, when the block begins; then the displacement of
# each load that leads to it.
_Value = tuple[Any, ...]


@dataclass(frozen=True)
class Store:
    """A store of one byte before the block.

    Attributes:
      byte: its offset from the pointer where forwarding shall fail.
      spare: its offset elsewhere, in the same line, which the block does not touch.
      fails: the instructions whose loads read the byte and others.
    """

    byte: int
    spare: int
    fails: frozenset[int]


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

    def stores(self, stays: bool = False) -> list[Store]:
        """The stores of one byte before the block that cannot be forwarded to some of its loads.

        Args:
          stays: whether the pointer is the same in the next copy.
        """
        # Loads of several bytes of which the block writes none before.
        loads = [
            (number, start, size)
            for place, (number, start, size, reads, _) in enumerate(self.places)
            if reads
            and size > 1
            and not any(
                writes and first < start + size and start < first + length
                for _, first, length, _, writes in self.places[: None if stays else place]
            )
        ]
        touched = {
            byte for _, start, size, *_ in self.places for byte in range(start, start + size)
        }
        found = {}
        for _, start, size in loads:
            byte = start + size - 1
            line = byte // _LINE * _LINE
            spare = sorted(set(range(line, line + _LINE)) - touched)
            if spare:
                fails = {n for n, first, length in loads if first <= byte < first + length}
                found[byte] = Store(byte, spare[0], frozenset(fails))
        return list(found.values())

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
      stores: possible stores through the pointer before the block.
    """

    register: int
    parent: int | None
    delay: bool
    offset: int
    first: int
    lines: int
    misses: frozenset[int]
    stores: tuple[Store, ...] = ()


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
            if part.access in READS and not only_address:
                reads.add(register)
        for operand in range(instruction.op_count):
            if instruction.op_kind(operand) == OpKind.REGISTER and info.op_access(operand) in READS:
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
                (number, distance, size, access.access in READS, writes)
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
        # A pointer that the block loads is not there before it.
        stores = tuple(uses.stores()) if parent is None else ()
        sources.append(
            ChosenPointer(value[0], parent, False, offset, first, lines, frozenset(misses), stores)
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


def stack_stores(code: bytes) -> list[Store]:
    """The possible stores to the stack before the block; none if it moves or copies the pointer."""
    found = _Analysis(code)
    uses = found.accesses.get((Register.RSP,), _Accesses(is_more=True))
    return [] if uses.is_more or Register.RSP in {*found.made, *found.values} else uses.stores(True)
