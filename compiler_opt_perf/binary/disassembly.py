# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Disassembles x86-64 binaries into instructions, their kinds and basic blocks.

iced-x86 decodes, which has no APX. Bytes that it cannot decode are skipped one by one.
"""

import bisect
import enum
import itertools
import re
from array import array
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import iced_x86
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from iced_x86 import Code, FlowControl, Mnemonic, OpAccess, OpKind

from compiler_opt_perf.binary.elf import (
    SHN_LORESERVE,
    STT_FILE,
    STT_OBJECT,
    STT_SECTION,
    STT_TLS,
    BinaryError,
    is_x86_64,
    open_elf,
    read_symbols,
)


class Kind(enum.Flag):
    """The effects of an instruction: several flags, or none.

    BRANCH covers jumps, calls and returns.
    """

    LOAD = enum.auto()
    STORE = enum.auto()
    BRANCH = enum.auto()
    CONDITIONAL = enum.auto()
    INDIRECT = enum.auto()
    CALL = enum.auto()
    RETURN = enum.auto()


_FLOW = {
    FlowControl.UNCONDITIONAL_BRANCH: Kind.BRANCH,
    FlowControl.INDIRECT_BRANCH: Kind.BRANCH | Kind.INDIRECT,
    FlowControl.CONDITIONAL_BRANCH: Kind.BRANCH | Kind.CONDITIONAL,
    FlowControl.CALL: Kind.BRANCH | Kind.CALL,
    FlowControl.INDIRECT_CALL: Kind.BRANCH | Kind.CALL | Kind.INDIRECT,
    FlowControl.RETURN: Kind.BRANCH | Kind.RETURN,
}
_READS = {OpAccess.READ, OpAccess.COND_READ, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE}
_WRITES = {OpAccess.WRITE, OpAccess.COND_WRITE, OpAccess.READ_WRITE, OpAccess.READ_COND_WRITE}
# iced-x86 reports a memory read for these, but they load nothing.
_FLUSHES = {Mnemonic.CLFLUSH, Mnemonic.CLFLUSHOPT, Mnemonic.CLWB}
# llvm-objdump, too, takes at least eight zero bytes for padding.
_PADDING = re.compile(rb"\0{8,}")
_NO_LABELS = {STT_SECTION, STT_FILE, STT_TLS}


class Instruction(NamedTuple):
    """One machine instruction.

    Attributes:
      address: link-time address.
      length: bytes.
      kind: its effects.
      target: link-time address that a direct branch jumps to; None for other instructions.
      mnemonic: AT&T mnemonic, with prefixes and the suffix for the operand size.
    """

    address: int
    length: int
    kind: Kind
    target: int | None
    mnemonic: str

    @property
    def leaves(self) -> bool:
        """Whether execution never falls through: an unconditional jump or a return."""
        return bool(self.kind & Kind.BRANCH) and not self.kind & (Kind.CONDITIONAL | Kind.CALL)


class _Form(NamedTuple):
    """Properties that all instructions of one form share: the same opcode and operand kinds.

    Attributes:
      kind: their effects.
      branches: whether they end a basic block.
      direct: whether they are direct branches.
    """

    kind: Kind
    branches: bool
    direct: bool


class _Decoder:
    """Decodes bytes; the kind of each instruction form is computed once."""

    def __init__(self) -> None:
        self._forms: dict[tuple[int, ...], _Form] = {}
        self._accesses = iced_x86.InstructionInfoFactory()
        self._formatter = iced_x86.Formatter(iced_x86.FormatterSyntax.GAS)
        self._formatter.gas_show_mnemonic_size_suffix = True

    def __call__(self, code: bytes, address: int) -> Iterator[Instruction]:
        mnemonic = self._formatter.format_mnemonic
        for decoded, form in self.forms(code, address):
            target = decoded.near_branch_target if form.direct else None
            yield Instruction(decoded.ip, decoded.len, form.kind, target, mnemonic(decoded))

    def forms(self, code: bytes, address: int) -> Iterator[tuple[iced_x86.Instruction, _Form]]:
        """Decodes `code`, which lies at `address`, into instructions with their forms."""
        forms = self._forms
        decoder = iced_x86.Decoder(64, code, ip=address)
        for decoded in decoder:
            # The operand kinds tell registers from memory where an opcode allows both.
            key = (
                decoded.code,
                decoded.op0_kind,
                decoded.op1_kind,
                decoded.op2_kind,
                decoded.op3_kind,
            )
            form = forms.get(key)
            if form is None:
                place = decoded.ip - address
                resume = _past_padding(code, place, decoded.code)
                if resume != place:
                    decoder.position, decoder.ip = resume, address + resume
                    continue
                form = self._form(decoded)
                # Zero bytes decode to this opcode: each occurrence may be padding.
                if decoded.code != Code.ADD_RM8_R8:
                    forms[key] = form
            yield decoded, form

    def _form(self, decoded: iced_x86.Instruction) -> _Form:
        direct = decoded.op0_kind == OpKind.NEAR_BRANCH64
        kind = _FLOW.get(decoded.flow_control, Kind(0))
        if decoded.flow_control == FlowControl.CALL and not direct:
            kind = Kind(0)  # A system call.
        for access in self._accesses.info(decoded).used_memory():
            if decoded.mnemonic not in _FLUSHES:
                kind |= Kind.LOAD if access.access in _READS else Kind(0)
                kind |= Kind.STORE if access.access in _WRITES else Kind(0)
        branches = Kind.BRANCH in kind
        return _Form(kind, branches, branches and direct)


def _past_padding(code: bytes, place: int, decoded: int) -> int:
    """Returns where decoding resumes after padding at `place`; `place` itself without padding."""
    if decoded == Code.INVALID:
        return place + 1
    if decoded == Code.ADD_RM8_R8 and (zeros := _PADDING.match(code, place)):
        # The last zeros may belong to an instruction.
        return zeros.end() if zeros.end() == len(code) else zeros.end() - len(zeros[0]) % 4
    return place


_decode = _Decoder()


def _labels(elf: ELFFile) -> tuple[set[int], set[int]]:
    """Returns symbol addresses: those of code or of unknown type, and those of data."""
    code: set[int] = set()
    data: set[int] = set()
    # A stripped binary has only the symbols of dynamic linking.
    table = ".symtab" if elf.get_section_by_name(".symtab") is not None else ".dynsym"
    for symbol in read_symbols(elf, table):
        if 0 < symbol.section < SHN_LORESERVE and symbol.kind not in _NO_LABELS:
            (data if symbol.kind == STT_OBJECT else code).add(symbol.address)
    return code, data


@dataclass(frozen=True)
class MachineCode:
    """The executable sections of an x86-64 binary.

    Attributes:
      sections: (link-time address, content) of each, by address.
      parts: (start, end) addresses of each function or other labelled part, ascending; without
        data among the code.
    """

    sections: list[tuple[int, bytes]]
    parts: list[tuple[int, int]]

    @classmethod
    def read(cls, binary: Path) -> Self:
        """Reads the code of a linked binary.

        Raises:
          BinaryError: the binary cannot be read, is not an x86-64 ELF file, or holds no code.
        """
        sections: list[tuple[int, bytes]] = []
        with open_elf(binary) as elf:
            if not is_x86_64(elf):
                raise BinaryError(f"{binary}: not an x86-64 binary")
            for section in elf.iter_sections():
                if (
                    section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR
                    and section["sh_type"] != "SHT_NOBITS"
                ):
                    elf.stream.seek(section["sh_offset"])
                    address, content = section["sh_addr"], elf.stream.read(section["sh_size"])
                    sections.append((address, content))
            labels, data = _labels(elf)
        sections.sort()
        ordered = sorted(labels | data)
        parts: list[tuple[int, int]] = []
        for address, content in sections:
            end = address + len(content)
            first = bisect.bisect_left(ordered, address)
            inside = [*ordered[first : bisect.bisect_left(ordered, end)], end]
            if inside[0] != address:
                inside.insert(0, address)
            parts += [
                (begin, part_end)
                for begin, part_end in itertools.pairwise(inside)
                if begin in labels or begin not in data
            ]
        if not parts:
            raise BinaryError(f"{binary}: holds no code")
        return cls(sections, parts)

    def content(self, start: int, end: int) -> bytes:
        """Returns the bytes from `start` up to `end`; fewer, or none, where there is no code."""
        place = bisect.bisect_right(self.sections, start, key=lambda section: section[0]) - 1
        if place < 0:
            return b""
        address, content = self.sections[place]
        return content[start - address : max(0, end - address)]

    def instructions(self, start: int, end: int) -> Iterator[Instruction]:
        """Decodes from `start`, an instruction's first byte, up to `end`."""
        return _decode(self.content(start, end), start)


@dataclass
class Disassembly:
    """The instructions of a binary.

    Attributes:
      addresses: link-time address of each instruction, ascending.
      kinds: effects of each instruction.
      blocks: basic-block number of each instruction.
    """

    addresses: list[int]
    kinds: list[Kind]
    blocks: list[int]

    def index(self, address: int) -> int | None:
        """Returns the index of the instruction at `address`; None when none begins there."""
        place = bisect.bisect_left(self.addresses, address)
        if place < len(self.addresses) and self.addresses[place] == address:
            return place
        return None

    def containing(self, address: int) -> int | None:
        """Returns the index of the instruction that covers `address`; None before the first."""
        place = bisect.bisect_right(self.addresses, address) - 1
        return place if place >= 0 else None

    def members(self, index: int) -> Sequence[int]:
        """Returns the indices of all instructions in the block of instruction `index`."""
        block = self.blocks[index]
        first = bisect.bisect_left(self.blocks, block)
        return range(first, bisect.bisect_right(self.blocks, block))


def disassemble(binary: Path) -> Disassembly:
    """Disassembles all executable sections of `binary`.

    Blocks begin at functions, after branches, and at targets of direct branches. Raises as
    `MachineCode.read`.
    """
    code = MachineCode.read(binary)
    addresses: list[int] = []
    kinds: list[Kind] = []
    leaders: set[int] = set()
    for start, end in code.parts:
        leaders.add(start)
        for decoded, form in _decode.forms(code.content(start, end), start):
            addresses.append(decoded.ip)
            kinds.append(form.kind)
            if form.branches:
                leaders.add(decoded.next_ip)
                if form.direct:
                    leaders.add(decoded.near_branch_target)
    blocks = list(itertools.accumulate(int(address in leaders) for address in addresses))
    return Disassembly(addresses, kinds, blocks)


def split_by_execution(
    binary: Path, executed: Set[int]
) -> tuple[list[dict[int, int]], "array[int]"]:
    """Splits the functions of `binary` by whether they hold an address of `executed`.

    Returns:
      For each executed function, its instructions' sizes in bytes by address; and the addresses of
      all instructions of the other functions.

    Raises as `MachineCode.read`.
    """
    code = MachineCode.read(binary)
    functions: list[dict[int, int]] = []
    others = array("Q")
    ordered = sorted(executed)
    for start, end in code.parts:
        instructions = _decode.forms(code.content(start, end), start)
        place = bisect.bisect_left(ordered, start)
        if place < len(ordered) and ordered[place] < end:
            functions.append({decoded.ip: decoded.len for decoded, _ in instructions})
        else:
            others.extend(decoded.ip for decoded, _ in instructions)
    return functions, others
