# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The instructions of an x86-64 binary: what they can do, and which blocks they form.

Decoded by iced-x86, which knows no APX: what it cannot decode is passed over byte by byte.
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
    """What an instruction can do; an instruction may be of several kinds, or of none.

    A branch is whatever may continue elsewhere: a jump, a call or a return.
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
# These count as reads of what they name, but load nothing.
_FLUSHES = {Mnemonic.CLFLUSH, Mnemonic.CLFLUSHOPT, Mnemonic.CLWB}
# As few zero bytes as are no instructions, but padding; as llvm-objdump has it.
_PADDING = re.compile(rb"\0{8,}")
_NO_LABELS = {STT_SECTION, STT_FILE, STT_TLS}


class Instruction(NamedTuple):
    """One machine instruction.

    Attributes:
      address: link-time address.
      length: bytes.
      kind: what it can do.
      target: where a direct branch leads; None for all others.
      mnemonic: in AT&T syntax, with prefixes and the suffix of the operands' size.
    """

    address: int
    length: int
    kind: Kind
    target: int | None
    mnemonic: str

    @property
    def leaves(self) -> bool:
        """Whether what stands behind it is not executed next: it is a jump or a return."""
        return bool(self.kind & Kind.BRANCH) and not self.kind & (Kind.CONDITIONAL | Kind.CALL)


class _Form(NamedTuple):
    """What is the same for all instructions of one form.

    Attributes:
      kind: what they can do.
      branches: whether they end a block.
      direct: whether they say where they lead.
    """

    kind: Kind
    branches: bool
    direct: bool


class _Decoder:
    """Decodes bytes; the kinds are found out once for each form of an instruction."""

    def __init__(self) -> None:
        self._forms: dict[tuple[int, ...], _Form] = {}
        self._accesses = iced_x86.InstructionInfoFactory()
        self._formatter = iced_x86.Formatter(iced_x86.FormatterSyntax.GAS)
        self._formatter.gas_show_mnemonic_size_suffix = True

    def __call__(self, code: bytes, address: int) -> Iterator[Instruction]:
        mnemonic = self._formatter.format_mnemonic
        for one, form in self.forms(code, address):
            target = one.near_branch_target if form.direct else None
            yield Instruction(one.ip, one.len, form.kind, target, mnemonic(one))

    def forms(self, code: bytes, address: int) -> Iterator[tuple[iced_x86.Instruction, _Form]]:
        """The instructions and their forms."""
        forms = self._forms
        decoder = iced_x86.Decoder(64, code, ip=address)
        for one in decoder:
            # Whether an operand is memory, where it can be that or a register.
            key = (one.code, one.op0_kind, one.op1_kind, one.op2_kind, one.op3_kind)
            form = forms.get(key)
            if form is None:
                place = one.ip - address
                after = _past_padding(code, place, one.code)
                if after != place:
                    decoder.position, decoder.ip = after, address + after
                    continue
                form = self._form(one)
                # Not what has to be looked at each time, for it may be padding.
                if one.code != Code.ADD_RM8_R8:
                    forms[key] = form
            yield one, form

    def _form(self, one: iced_x86.Instruction) -> _Form:
        direct = one.op0_kind == OpKind.NEAR_BRANCH64
        kind = _FLOW.get(one.flow_control, Kind(0))
        if one.flow_control == FlowControl.CALL and not direct:
            kind = Kind(0)  # A call of the system.
        for access in self._accesses.info(one).used_memory():
            if one.mnemonic not in _FLUSHES:
                kind |= Kind.LOAD if access.access in _READS else Kind(0)
                kind |= Kind.STORE if access.access in _WRITES else Kind(0)
        branches = Kind.BRANCH in kind
        return _Form(kind, branches, branches and direct)


def _past_padding(code: bytes, place: int, decoded: int) -> int:
    """Where to go on when there is no instruction at `place`; `place` when there is one."""
    if decoded == Code.INVALID:
        return place + 1
    if decoded == Code.ADD_RM8_R8 and (zeros := _PADDING.match(code, place)):
        # The last ones may be of an instruction.
        return zeros.end() if zeros.end() == len(code) else zeros.end() - len(zeros[0]) % 4
    return place


_decode = _Decoder()


def _labels(elf: ELFFile) -> tuple[set[int], set[int]]:
    """The addresses of symbols: of code, or of something that is not said; and of data."""
    code: set[int] = set()
    data: set[int] = set()
    # A stripped binary has but the symbols of dynamic linking.
    table = ".symtab" if elf.get_section_by_name(".symtab") is not None else ".dynsym"
    for symbol in read_symbols(elf, table):
        if 0 < symbol.section < SHN_LORESERVE and symbol.kind not in _NO_LABELS:
            (data if symbol.kind == STT_OBJECT else code).add(symbol.address)
    return code, data


@dataclass(frozen=True)
class MachineCode:
    """The executable sections of an x86-64 binary.

    Attributes:
      sections: address and content of each, by address.
      parts: first address and address behind each function or other labelled part, ascending; data
        among the code is left out.
    """

    sections: list[tuple[int, bytes]]
    parts: list[tuple[int, int]]

    @classmethod
    def read(cls, binary: Path) -> Self:
        """Reads the code of a linked binary.

        Raises:
          BinaryError: it cannot be read, is not an x86-64 ELF file, or holds no code.
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
                (begin, behind)
                for begin, behind in itertools.pairwise(inside)
                if begin in labels or begin not in data
            ]
        if not parts:
            raise BinaryError(f"{binary}: holds no code")
        return cls(sections, parts)

    def content(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`; fewer, or none, where there is no code."""
        place = bisect.bisect_right(self.sections, start, key=lambda section: section[0]) - 1
        if place < 0:
            return b""
        address, content = self.sections[place]
        return content[start - address : max(0, end - address)]

    def instructions(self, start: int, end: int) -> Iterator[Instruction]:
        """The instructions from `start`, where one begins, up to `end`."""
        return _decode(self.content(start, end), start)


@dataclass
class Disassembly:
    """The instructions of a binary.

    Attributes:
      addresses: link-time addresses, ascending.
      kinds: of each.
      blocks: for each instruction, the number of the basic block that it is in.
    """

    addresses: list[int]
    kinds: list[Kind]
    blocks: list[int]

    def index(self, address: int) -> int | None:
        """The number of the instruction at `address`; None when none begins there."""
        place = bisect.bisect_left(self.addresses, address)
        if place < len(self.addresses) and self.addresses[place] == address:
            return place
        return None

    def containing(self, address: int) -> int | None:
        """The number of the instruction that holds `address`; None before the first."""
        place = bisect.bisect_right(self.addresses, address) - 1
        return place if place >= 0 else None

    def members(self, index: int) -> Sequence[int]:
        """The numbers of all instructions in the block of instruction `index`."""
        block = self.blocks[index]
        first = bisect.bisect_left(self.blocks, block)
        return range(first, bisect.bisect_right(self.blocks, block))


def disassemble(binary: Path) -> Disassembly:
    """Disassembles all executable sections of `binary`.

    Blocks begin at functions, after branches, and where direct branches lead.

    Raises as `MachineCode.read`.
    """
    code = MachineCode.read(binary)
    addresses: list[int] = []
    kinds: list[Kind] = []
    leaders: set[int] = set()
    for start, end in code.parts:
        leaders.add(start)
        for one, form in _decode.forms(code.content(start, end), start):
            addresses.append(one.ip)
            kinds.append(form.kind)
            if form.branches:
                leaders.add(one.next_ip)
                if form.direct:
                    leaders.add(one.near_branch_target)
    blocks = list(itertools.accumulate(int(address in leaders) for address in addresses))
    return Disassembly(addresses, kinds, blocks)


def split_by_execution(
    binary: Path, executed: Set[int]
) -> tuple[list[dict[int, int]], "array[int]"]:
    """The functions of `binary` that hold one of the addresses `executed`, and the others.

    Returns:
      For each executed function, by address the size of each of its instructions in bytes; and the
      addresses of all instructions of other functions.

    Raises as `MachineCode.read`.
    """
    code = MachineCode.read(binary)
    found: list[dict[int, int]] = []
    others = array("Q")
    wanted = sorted(executed)
    for start, end in code.parts:
        decoded = _decode.forms(code.content(start, end), start)
        place = bisect.bisect_left(wanted, start)
        if place < len(wanted) and wanted[place] < end:
            found.append({one.ip: one.len for one, _ in decoded})
        else:
            others.extend(one.ip for one, _ in decoded)
    return found, others
