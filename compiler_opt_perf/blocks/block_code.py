# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Basic blocks of machine code to measure: where they are from, and which can be measured."""

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

#: Bytes of a block, as measure_blocks.c has it.
MOST_BYTES = 512
# Where measure_blocks.c places the targets of operands relative to the instruction pointer.
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
# These take as long as a hypervisor or other cores let them, or leave a state behind that makes
# what follows slow or trap.
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
    """A file without blocks, or a line that is none; the message names the place."""


@dataclass(frozen=True)
class Block:
    """A block, and where it was found first.

    Attributes:
      code: its bytes, without the jump, call or return that ends it.
      program, function: names; empty where they are not known.
      address: link-time address; None where it is not known.
      occurrences: how often it was found.
      pmu: by name, what is known of its instructions where it is measured at known rates.
      request: the line that measure_blocks.c wants then; empty if the code alone tells it.
      refused: why it cannot be measured so.
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
    """The line that measure_blocks.c wants for a block, or why it cannot be measured.

    Returns:
      The line, without its end, and an empty text; or an empty text and the reason.
    """
    if not code:
        return "", "no instructions"
    if len(code) > MOST_BYTES:
        return "", "too long"
    operands = []
    decoder = iced_x86.Decoder(64, code)
    for one in decoder:
        reason = _refused(one)
        if reason:
            return "", reason
        if one.is_ip_rel_memory_operand:
            place = one.ip + decoder.get_constant_offsets(one).displacement_offset
            # What is aligned in the program is so here, whatever its address.
            size = MemorySizeExt.size(one.memory_size) or 1
            target = one.ip_rel_memory_address % _TARGETS
            target -= target % min(size & -size, 64)
            operands.append(f" {place}:{one.next_ip}:{target}")
    return code.hex() + "".join(operands), ""


def _refused(one: iced_x86.Instruction) -> str:
    """Why an instruction cannot be measured; empty if it can."""
    if one.is_invalid:
        return "no instruction"
    if one.mnemonic in _SYSTEM_CALLS:
        return "system call"
    if one.is_privileged:
        return "privileged instruction"
    if one.flow_control == FlowControl.EXCEPTION:
        return "illegal instruction"
    if one.flow_control != FlowControl.NEXT:
        return "jump, call or return"
    if _X87.intersection(one.cpuid_features()):
        return "x87 or MMX"
    if one.mnemonic in _UNSUPPORTED or one.memory_base == Register.EIP:
        return "unsupported instruction"
    # iced names the segment that counts; of strings it is that of the source.
    if one.segment_prefix in (Register.FS, Register.GS):
        return "thread-local memory"
    return ""


def canonical(code: bytes) -> bytes:
    """The code with displacements from the instruction pointer as 0.

    Two blocks that differ in them alone are the same block at two addresses.
    """
    found = bytearray(code)
    decoder = iced_x86.Decoder(64, code)
    for one in decoder:
        if one.is_ip_rel_memory_operand:
            place = one.ip + decoder.get_constant_offsets(one).displacement_offset
            found[place : place + 4] = bytes(4)
    return bytes(found)


def distinct(blocks: Iterator[Block]) -> list[Block]:
    """Each block once, as it was found first, with the number of occurrences."""
    first: dict[bytes, Block] = {}
    counts: dict[bytes, int] = {}
    for block in blocks:
        key = canonical(block.code)
        first.setdefault(key, block)
        counts[key] = counts.get(key, 0) + block.occurrences
    return [
        Block(one.code, one.program, one.function, one.address, counts[key])
        for key, one in first.items()
    ]


def find_blocks(files: Mapping[str, Sequence[Path]]) -> Iterator[Block]:
    """The blocks of files: binaries, object files, or lists of blocks.

    A list has a block in hexadecimal digits in a line, as BHive's files; what follows a comma is
    left alone.

    Args:
      files: by the name of the program.

    Raises:
      BlockError: a file cannot be read.
      BlockFileError: a line of a list is no block.
      BinaryError: a binary is damaged, or of another machine.
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
    """Whether it is an object file that is not linked. Raises BinaryError: no ELF file."""
    with open_elf(path) as elf:
        return bool(elf["e_type"] == "ET_REL")


def linked(objects: Sequence[Path], image: Path) -> Path:
    """Links object files to look at their code, whatever they lack; returns `image`.

    What they lack lies at address 0: an operand that names it is as good as any other.

    Raises:
      CommandError: they cannot be linked.
    """
    run_command([stock_tool("ld.lld"), *_LINK, *objects, "-o", image])
    return image


def _of_binary(path: Path, program: str) -> Iterator[Block]:
    """The blocks of a binary, by address. A call ends one, and so does a trap."""
    code = MachineCode.read(path)
    names = _functions(path)
    starts = sorted(names)
    decoded = [list(code.instructions(start, end)) for start, end in code.parts]
    leaders = {one.target for part in decoded for one in part if one.target is not None}
    for part in decoded:
        start = None
        for index, one in enumerate(part):
            if start is None:
                start = one.address
            behind = one.address + one.length
            last = index + 1 == len(part)
            # Linkers and compilers fill gaps with traps.
            branches = Kind.BRANCH in one.kind or one.mnemonic == "int3"
            # Padding that is no instruction ends a block, too.
            if not (branches or last or behind in leaders or part[index + 1].address != behind):
                continue
            end = one.address if branches else behind
            if end > start:
                place = bisect.bisect_right(starts, start) - 1
                function = names[starts[place]] if place >= 0 else ""
                yield Block(code.content(start, end), program, function, start)
            start = None


def _functions(path: Path) -> dict[int, str]:
    """Names of functions by address."""
    with open_elf(path) as elf:
        if not is_x86_64(elf):
            return {}
        table = ".symtab" if elf.get_section_by_name(".symtab") is not None else ".dynsym"
        return {
            symbol.address: symbol.name
            for symbol in read_symbols(elf, table)
            if symbol.kind == STT_FUNC and symbol.section
        }
