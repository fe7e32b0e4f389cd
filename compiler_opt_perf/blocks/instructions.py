# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Describes instructions for learned cost models, without their context.

A program's instructions repeat, so each form without constants is analysed once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import iced_x86
from iced_x86 import (
    MemorySizeExt,
    Mnemonic,
    OpAccess,
    OpKind,
    Register,
    RegisterExt,
    RflagsBits,
)

#: Prefixes of tokens.
OPCODE, MEMORY, REGISTER, FORM = "op:", "mem:", "reg:", "form:"
#: Resources besides registers: the carry flag, which INC leaves alone, and the other flags.
CARRY, FLAGS = 1000, 1001

_READS = {
    OpAccess.READ,
    OpAccess.COND_READ,
    OpAccess.READ_WRITE,
    OpAccess.READ_COND_WRITE,
}
_WRITES = {
    OpAccess.WRITE,
    OpAccess.COND_WRITE,
    OpAccess.READ_WRITE,
    OpAccess.READ_COND_WRITE,
}
# A conditional write keeps the old value if the condition is false.
_KEEPS = {OpAccess.COND_WRITE, OpAccess.READ_COND_WRITE}
# Instructions that use more registers than this, such as VZEROUPPER, make no dependences.
_MOST_REGISTERS = 12
_WHOLE_BYTES = 4


def _enumerators(module: Any) -> dict[int, str]:
    return {
        value: name.lower()
        for name, value in vars(module).items()
        if isinstance(value, int) and not name.startswith("_")
    }


_MNEMONICS = _enumerators(Mnemonic)
_REGISTERS = _enumerators(Register)


@dataclass(frozen=True, slots=True)
class Access:
    """An access to memory.

    Attributes:
      base, index: the registers; 0 for none.
      scale: factor of the index.
      displacement: bytes, for implicit operands such as the stack; None if the instruction encodes
        a displacement.
      token: token of the accessed value.
      reads, writes: whether it reads, whether it writes.
    """

    base: int
    index: int
    scale: int
    displacement: int | None
    token: str
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class Described:
    """An instruction without its constants.

    Attributes:
      opcode: token of the mnemonic; it ends with "=" if both operands are the same register.
      form: token of the operands' kinds and sizes.
      reads, writes: (resource, token) of registers and flags, without registers in addresses.
      addresses: (resource, token) of registers in an address that is not accessed (LEA).
      accesses: memory accesses.
      immediates: tokens of immediates.
      latency: rough cycles, only used to find the longest dependence chain.
    """

    opcode: str
    form: str
    reads: tuple[tuple[int, str], ...]
    writes: tuple[tuple[int, str], ...]
    addresses: tuple[tuple[int, str], ...]
    accesses: tuple[Access, ...]
    immediates: tuple[str, ...]
    latency: float

    def record(self, number: Callable[[str], int]) -> list[int]:
        """The instruction's record for block_graph.c.

        Args:
          number: returns the number of a token.
        """
        groups = self.reads, self.addresses, self.immediates, self.accesses, self.writes
        found = [number(self.opcode), *map(len, groups)]
        for resource, token in (*self.reads, *self.addresses):
            found += resource, number(token)
        found += map(number, self.immediates)
        for access in self.accesses:
            for register in (access.base, access.index):
                found += register, number(register_token(register)) if register else 0
            distance = access.displacement
            found += access.scale, distance is not None, distance or 0
            found += number(access.token), access.reads, access.writes
        for resource, token in self.writes:
            found += resource, number(token)
        return found


@dataclass(frozen=True, slots=True)
class GraphInstruction:
    """An instruction with its constants.

    Attributes:
      described: the instruction without constants; one object for all with the same form.
      displacement: bytes; relative to the next instruction if `from_next`.
      grows, by: the register that grows by a constant (0 for none), and the constant.
    """

    described: Described
    displacement: int
    from_next: bool
    grows: int
    by: int


def register_token(register: int) -> str:
    """The token of a register's value."""
    return f"{REGISTER}{_REGISTERS.get(register, 'flags')}"


class Describer:
    """Describes instructions; caches the results by their bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, GraphInstruction] = {}
        # Bytes without constants -> description.
        self._described: dict[bytes, Described] = {}
        self._accesses = iced_x86.InstructionInfoFactory()

    def block(self, code: bytes) -> list[tuple[GraphInstruction, int]]:
        """The instructions of a block with their end offsets; empty if one is invalid."""
        found = []
        start = 0
        decoder = iced_x86.Decoder(64, code)
        for decoded in decoder:
            if decoded.is_invalid:
                return []
            end = start + decoded.len
            content = code[start:end]
            known = self._known.get(content)
            if known is None:
                known = self._known[content] = self.instruction(decoded, content, decoder)
            found.append((known, end))
            start = end
        return found

    def instruction(
        self, decoded: iced_x86.Instruction, content: bytes, decoder: iced_x86.Decoder
    ) -> GraphInstruction:
        """Describes an instruction.

        Args:
          decoded: the decoded instruction.
          content: its bytes.
          decoder: the decoder that decoded it.
        """
        places = decoder.get_constant_offsets(decoded)
        masked = bytearray(content)
        for place, size in (
            (places.displacement_offset, places.displacement_size),
            (places.immediate_offset, places.immediate_size),
        ):
            masked[place : place + size] = bytes(size)
        described = self._described.get(bytes(masked))
        if described is None:
            described = self._described[bytes(masked)] = self._describe(decoded)
        displacement = _signed(decoded.memory_displacement)
        from_next = decoded.is_ip_rel_memory_operand
        if from_next:
            displacement -= decoded.next_ip
        return GraphInstruction(described, displacement, from_next, *_increment(decoded))

    def _describe(self, decoded: iced_x86.Instruction) -> Described:
        info = self._accesses.info(decoded)
        in_addresses = {
            RegisterExt.full_register(part)
            for memory in info.used_memory()
            for part in (memory.base, memory.index)
        }
        reads: dict[int, str] = {}
        writes: dict[int, str] = {}
        addresses: dict[int, str] = {}
        used = info.used_registers()
        explicit = {
            decoded.op_register(n) for n in range(decoded.op_count) if _is_register(decoded, n)
        }
        for part in used if len(used) <= _MOST_REGISTERS else ():
            register, full = part.register, RegisterExt.full_register(part.register)
            token = register_token(register)
            if part.access in _READS:
                only_address = full in in_addresses and register not in explicit
                if decoded.mnemonic == Mnemonic.LEA:
                    addresses.setdefault(full, token)
                elif not only_address or part.access != OpAccess.READ:
                    reads.setdefault(full, token)
            if part.access in _WRITES:
                writes[full] = token
                if part.access in _KEEPS or _is_part(register):
                    reads.setdefault(full, token)
        for mask, target in ((decoded.rflags_read, reads), (decoded.rflags_modified, writes)):
            if mask & RflagsBits.CF:
                target[CARRY] = f"{REGISTER}carry"
            if mask & ~RflagsBits.CF:
                target[FLAGS] = f"{REGISTER}flags"
        # With two equal register operands, instructions such as XOR break dependences.
        mnemonic = _MNEMONICS[decoded.mnemonic]
        opcode = f"{OPCODE}{_prefix(decoded)}{mnemonic}{'=' * _operands_equal(decoded)}"
        immediates = tuple(
            "imm" for n in range(decoded.op_count) if decoded.op_kind(n) in _IMMEDIATES
        )
        accesses = tuple(_access(decoded, memory) for memory in info.used_memory())
        form = FORM + ",".join(_operand(decoded, n) for n in range(decoded.op_count))
        return Described(
            opcode=opcode,
            form=form,
            reads=tuple(reads.items()),
            writes=tuple(writes.items()),
            addresses=tuple(addresses.items()),
            accesses=accesses,
            immediates=immediates,
            latency=_latency(opcode, form),
        )


_IMMEDIATES = {
    value for value, name in _enumerators(OpKind).items() if name.startswith("immediate")
}


# Rough latencies by part of the mnemonic, for all CPUs; the first match counts.
_LATENCIES = (
    ("sqrt", 15.0),
    ("div", 12.0),
    ("mul", 3.0),
    ("fm", 4.0),
    ("cvt", 4.0),
    ("crc32", 3.0),
    ("cmp", 1.0),
    ("mov", 0.5),
    ("xor", 1.0),
    ("and", 1.0),
    ("or", 1.0),
    ("shuf", 1.0),
    ("unpck", 1.0),
    ("padd", 1.0),
    ("psub", 1.0),
    ("add", 3.0),
    ("sub", 3.0),
    ("round", 3.0),
    ("hadd", 4.0),
)
_NOT_ONLY_OF_VECTORS = ("mul", "div", "crc32", "mov")


def _latency(opcode: str, form: str) -> float:
    is_vector = "v" in form.removeprefix(FORM)
    for part, cycles in _LATENCIES:
        if part in opcode and (is_vector or part in _NOT_ONLY_OF_VECTORS):
            return cycles
    return 1.0


def _is_register(decoded: iced_x86.Instruction, number: int) -> bool:
    return bool(decoded.op_kind(number) == OpKind.REGISTER)


def _is_part(register: Any) -> bool:
    """Whether a write to the register keeps the rest of its full register."""
    return bool(RegisterExt.is_gpr(register) and RegisterExt.size(register) < _WHOLE_BYTES)


def _prefix(decoded: iced_x86.Instruction) -> str:
    if decoded.has_lock_prefix:
        return "lock "
    return "rep " if decoded.has_rep_prefix or decoded.has_repne_prefix else ""


def _operands_equal(decoded: iced_x86.Instruction) -> bool:
    """Whether the last two operands are the same register."""
    last = decoded.op_count - 1
    if last < 1 or not (_is_register(decoded, last) and _is_register(decoded, last - 1)):
        return False
    return bool(decoded.op_register(last) == decoded.op_register(last - 1))


def _operand(decoded: iced_x86.Instruction, number: int) -> str:
    kind = decoded.op_kind(number)
    if kind == OpKind.REGISTER:
        register = decoded.op_register(number)
        letter = "r" if RegisterExt.is_gpr(register) else "v"
        return f"{letter}{8 * RegisterExt.size(register)}"
    if kind in _IMMEDIATES:
        return "i"
    if decoded.mnemonic == Mnemonic.LEA:
        parts = [decoded.memory_base, decoded.memory_index, decoded.memory_displ_size]
        return f"a{sum(map(bool, parts))}{'*' * (decoded.memory_index_scale > 1)}"
    return f"m{8 * MemorySizeExt.size(decoded.memory_size)}"


def _access(decoded: iced_x86.Instruction, memory: Any) -> Access:
    reads, writes = memory.access in _READS, memory.access in _WRITES
    change = decoded.stack_pointer_increment
    is_stack = change and memory.base == Register.RSP and (writes if change < 0 else reads)
    own = OpKind.MEMORY in map(decoded.op_kind, range(decoded.op_count)) and not is_stack
    return Access(
        base=RegisterExt.full_register(memory.base),
        index=RegisterExt.full_register(memory.index),
        scale=memory.scale,
        displacement=None if own else _signed(memory.displacement),
        token=f"{MEMORY}{MemorySizeExt.size(memory.memory_size)}",
        reads=reads,
        writes=writes,
    )


def _signed(value: int) -> int:
    return value - (1 << 64) * (value >= 1 << 63)


def _increment(decoded: iced_x86.Instruction) -> tuple[int, int]:
    """The register that grows by a constant, and the constant."""
    if decoded.stack_pointer_increment:
        return Register.RSP, decoded.stack_pointer_increment
    register = decoded.op0_register
    if not RegisterExt.is_gpr64(register):
        return Register.NONE, 0
    if decoded.mnemonic in (Mnemonic.INC, Mnemonic.DEC):
        return register, 1 if decoded.mnemonic == Mnemonic.INC else -1
    if decoded.mnemonic in (Mnemonic.ADD, Mnemonic.SUB) and decoded.op1_kind in _IMMEDIATES:
        value = _signed(decoded.immediate(1))
        return register, value if decoded.mnemonic == Mnemonic.ADD else -value
    moved = decoded.mnemonic == Mnemonic.LEA and decoded.memory_base == register
    if moved and decoded.memory_index == Register.NONE:
        return register, _signed(decoded.memory_displacement)
    return Register.NONE, 0
