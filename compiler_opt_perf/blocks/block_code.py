# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds basic blocks of machine code in files, and decides which of them can be measured."""

import bisect
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import iced_x86
from iced_x86 import CpuidFeature, FlowControl, MemorySizeExt, Mnemonic, Register

from compiler_opt_perf.binary.disassembly import Kind, MachineCode
from compiler_opt_perf.binary.elf import STT_FUNC, is_x86_64, open_elf, read_symbols
from compiler_opt_perf.blocks.block_file import listed_blocks
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import open_input
from compiler_opt_perf.run.llvm import stock_tool

#: The most bytes of a block, as in measure_blocks.c.
MOST_BYTES = 512
# The size of measure_blocks.c's memory for operands relative to the instruction pointer.
_TARGETS = 1 << 24
_ELF = b"\x7fELF"
_LINK = (
    *("--noinhibit-exec", "--unresolved-symbols=ignore-all", "--allow-multiple-definition"),
    "--entry=0",
)
_X87 = {
    getattr(CpuidFeature, name)
    for name in ("FPU", "FPU287", "FPU287XL_ONLY", "FPU387", "MMX", "D3NOW", "D3NOWEXT")
}
# Instructions whose time depends on a hypervisor or on other cores, or which leave a state in which
# later instructions are slow or trap.
_UNSUPPORTED = {
    getattr(Mnemonic, name)
    for name in (
        *("CPUID", "RDTSC", "RDTSCP", "RDPMC", "RDRAND", "RDSEED", "RDPID", "XGETBV", "SGDT"),
        *("SIDT", "SLDT", "STR", "SMSW", "PAUSE", "TPAUSE", "UMWAIT", "UMONITOR", "MONITORX"),
        *("MWAITX", "STD", "POPF", "POPFQ", "LDMXCSR", "VLDMXCSR", "FXRSTOR", "FXRSTOR64"),
        *("XRSTOR", "XRSTOR64", "FXSAVE", "FXSAVE64", "XSAVE", "XSAVE64", "XSAVEC", "XSAVEC64"),
        *("WRFSBASE", "WRGSBASE", "WRPKRU", "CLFLUSH", "CLFLUSHOPT", "CLWB", "CLDEMOTE"),
    )
}
_SYSTEM_CALLS = {
    getattr(Mnemonic, name) for name in ("SYSCALL", "SYSENTER", "INT", "INT1", "INT3", "INTO")
}


class BlockError(UserError):
    """A file cannot be read; the message names it."""


@dataclass(frozen=True)
class Block:
    """A basic block, with the place where it was found first.

    Attributes:
      code: its bytes, without the jump, call or return that ends it.
      program, function: names; empty if unknown.
      address: link-time address; None if unknown.
      occurrences: number of times it was found.
      pmu: name of a PMU input -> value for each instruction; empty unless measured at known rates.
      request: input line for measure_blocks.c at known rates; empty for a plain measurement.
      refused: the reason why it cannot be measured at known rates; else empty.
    """

    code: bytes
    program: str = ""
    function: str = ""
    address: int | None = None
    occurrences: int = 1
    pmu: tuple[tuple[str, tuple[float | None, ...]], ...] = ()
    request: str = ""
    refused: str = ""


def request(code: bytes) -> tuple[str, str]:
    """The input line for measure_blocks.c, or the reason why a block cannot be measured.

    Returns:
      (line without newline, ""), or ("", reason).
    """
    if not code:
        return "", "no instructions"
    if len(code) > MOST_BYTES:
        return "", "too long"
    operands = []
    decoder = iced_x86.Decoder(64, code)
    for instruction in decoder:
        reason = _refused(instruction)
        if reason:
            return "", reason
        if instruction.is_ip_rel_memory_operand:
            place = instruction.ip + decoder.get_constant_offsets(instruction).displacement_offset
            # Operands keep their natural alignment, whatever their address in the program.
            size = MemorySizeExt.size(instruction.memory_size) or 1
            target = instruction.ip_rel_memory_address % _TARGETS
            target -= target % min(size & -size, 64)
            operands.append(f" {place}:{instruction.next_ip}:{target}")
    return code.hex() + "".join(operands), ""


def _refused(instruction: iced_x86.Instruction) -> str:
    """The reason why an instruction cannot be measured; empty if it can."""
    if instruction.is_invalid:
        return "no instruction"
    if instruction.mnemonic in _SYSTEM_CALLS:
        return "system call"
    if instruction.is_privileged:
        return "privileged instruction"
    if instruction.flow_control == FlowControl.EXCEPTION:
        return "illegal instruction"
    if instruction.flow_control != FlowControl.NEXT:
        return "jump, call or return"
    if _X87.intersection(instruction.cpuid_features()):
        return "x87 or MMX"
    if instruction.mnemonic in _UNSUPPORTED or instruction.memory_base == Register.EIP:
        return "unsupported instruction"
    # For string instructions, iced gives the segment of the source.
    if instruction.segment_prefix in (Register.FS, Register.GS):
        return "thread-local memory"
    return ""


def canonical(code: bytes) -> bytes:
    """The code with displacements relative to the instruction pointer set to 0.

    Blocks with equal canonical code are the same block at several addresses.
    """
    found = bytearray(code)
    decoder = iced_x86.Decoder(64, code)
    for instruction in decoder:
        if instruction.is_ip_rel_memory_operand:
            place = instruction.ip + decoder.get_constant_offsets(instruction).displacement_offset
            found[place : place + 4] = bytes(4)
    return bytes(found)


def distinct(blocks: Iterator[Block]) -> list[Block]:
    """Merges blocks of equal canonical code; keeps the first one, and adds up occurrences."""
    first: dict[bytes, Block] = {}
    counts: dict[bytes, int] = {}
    for block in blocks:
        key = canonical(block.code)
        first.setdefault(key, block)
        counts[key] = counts.get(key, 0) + block.occurrences
    return [
        Block(block.code, block.program, block.function, block.address, counts[key])
        for key, block in first.items()
    ]


def find_blocks(files: Mapping[str, Sequence[Path]]) -> Iterator[Block]:
    """Yields the blocks of binaries, object files and lists of blocks.

    A list has one block per line in hexadecimal digits, as BHive's files; further columns are
    ignored.

    Args:
      files: name of a program -> its files.

    Raises:
      BlockError: a file cannot be read.
      BlockFileError: a line of a list is not a block.
      BinaryError: a binary is damaged, or for another machine.
      CommandError: object files cannot be linked.
    """
    try:
        yield from _find_blocks(files)
    except OSError as error:
        raise BlockError(f"{error.filename}: cannot be read: {error.strerror or error}") from error


def _find_blocks(files: Mapping[str, Sequence[Path]]) -> Iterator[Block]:
    for program, paths in files.items():
        objects = []
        for path in paths:
            if not _is_elf(path):
                yield from (Block(code, program) for _, code, _ in listed_blocks(path))
            elif is_object(path):
                objects.append(path)
            else:
                yield from _of_binary(path, program)
        if objects:
            with tempfile.TemporaryDirectory(prefix="blocks-") as folder:
                yield from _of_binary(linked(objects, Path(folder) / "image"), program)


def _is_elf(path: Path) -> bool:
    with open_input(path) as stream:
        return stream.read(len(_ELF)) == _ELF


def is_object(path: Path) -> bool:
    """Whether a file is an unlinked object file. Raises BinaryError: it is not an ELF file."""
    with open_elf(path) as elf:
        return bool(elf["e_type"] == "ET_REL")


def linked(objects: Sequence[Path], image: Path) -> Path:
    """Links object files to `image`, to read their code; returns `image`.

    Undefined symbols get the address 0.

    Raises:
      CommandError: the linker failed.
    """
    run_command([stock_tool("ld.lld"), *_LINK, *objects, "-o", image])
    return image


def _of_binary(path: Path, program: str) -> Iterator[Block]:
    """Yields the blocks of a binary by address. Calls and traps end a block, too."""
    code = MachineCode.read(path)
    names = _functions(path)
    starts = sorted(names)
    decoded = [list(code.instructions(start, end)) for start, end in code.parts]
    leaders = {
        instruction.target
        for part in decoded
        for instruction in part
        if instruction.target is not None
    }
    for part in decoded:
        start = None
        for index, instruction in enumerate(part):
            if start is None:
                start = instruction.address
            behind = instruction.address + instruction.length
            last = index + 1 == len(part)
            # Linkers and compilers fill gaps with traps.
            branches = Kind.BRANCH in instruction.kind or instruction.mnemonic == "int3"
            # Bytes that are not instructions end a block, too.
            if not (branches or last or behind in leaders or part[index + 1].address != behind):
                continue
            end = instruction.address if branches else behind
            if end > start:
                place = bisect.bisect_right(starts, start) - 1
                function = names[starts[place]] if place >= 0 else ""
                yield Block(code.content(start, end), program, function, start)
            start = None


def _functions(path: Path) -> dict[int, str]:
    """Address -> name of each function."""
    with open_elf(path) as elf:
        if not is_x86_64(elf):
            return {}
        table = ".symtab" if elf.get_section_by_name(".symtab") is not None else ".dynsym"
        return {
            symbol.address: symbol.name
            for symbol in read_symbols(elf, table)
            if symbol.kind == STT_FUNC and symbol.section
        }
