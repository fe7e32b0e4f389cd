# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.disassembly import (
    Instruction,
    Kind,
    MachineCode,
    disassemble,
)
from compiler_opt_perf.binary.elf import BinaryError
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

pytestmark = pytest.mark.compiler

LOAD, STORE, BRANCH = Kind.LOAD, Kind.STORE, Kind.BRANCH


# Instructions of which it is known what they do.
KINDS = {
    "movq (%rdi,%rax,8), %rax": LOAD,
    "movq %rax, 8(%rdi,%rcx,8)": STORE,
    "movl $5, (%rsp)": STORE,
    "addl %eax, (%rcx)": LOAD | STORE,
    "addq 16(%rsp), %rax": LOAD,
    "cmpb $0x7f, (%rdi,%rax)": LOAD,
    "btsl %eax, (%rdi)": LOAD | STORE,
    "leaq 8(%rdi), %rax": Kind(0),
    "nopw %cs:(%rax,%rax)": Kind(0),
    "xorl %eax, %eax": Kind(0),
    "pushq %rbp": STORE,
    "pushq (%rdi)": LOAD | STORE,
    "popq %rbp": LOAD,
    "leave": LOAD,
    "rep movsb": LOAD | STORE,
    "rep stosq": STORE,
    "movq %fs:0x28, %rax": LOAD,
    "vmovdqu %ymm0, (%rdi)": STORE,
    "vextracti128 $1, %ymm0, (%rdi)": STORE,
    "vmaskmovps (%rdi), %ymm0, %ymm1": LOAD,
    "vpgatherdd %ymm1, (%rdi,%ymm2,4), %ymm3": LOAD,
    "vscatterdps %zmm1, (%rdi,%zmm0,4) {%k1}": STORE,
    "prefetcht0 (%rdi)": Kind(0),
    "clflush (%rdi)": Kind(0),
    "lock cmpxchgl %ecx, (%rdx)": LOAD | STORE,
    # The numbers of the x87 unit that are in memory, and those that are in its registers.
    "flds (%rdi)": LOAD,
    "fldt 16(%rsp)": LOAD,
    "fildll (%rdi)": LOAD,
    "fmull 8(%rdi)": LOAD,
    "fstpt (%rsp)": STORE,
    "fistpll (%rsp)": STORE,
    "fnstcw (%rsp)": STORE,
    "fldcw (%rsp)": LOAD,
    "fld %st(1)": Kind(0),
    "faddp %st, %st(1)": Kind(0),
    "ldmxcsr (%rsp)": LOAD,
    # Without a register in the address.
    "movl 0x600000, %eax": LOAD,
    "movl %eax, 0x600000": STORE,
    "incl 0x600000": LOAD | STORE,
    "movabsb 0x1122334455667788, %al": LOAD,
    "movabsb %al, 0x1122334455667788": STORE,
    "movq %gs:0x10, %rax": LOAD,
    "leaq 0x600000, %rax": Kind(0),
    "syscall": Kind(0),
    "jne behind": BRANCH | Kind.CONDITIONAL,
    "jmp behind": BRANCH,
    "jmpq *%rax": BRANCH | Kind.INDIRECT,
    "jmpq *0x2fe2(%rip)": BRANCH | Kind.INDIRECT | LOAD,
    "callq behind": BRANCH | Kind.CALL | STORE,
    "callq *8(%rsp)": BRANCH | Kind.CALL | Kind.INDIRECT | STORE | LOAD,
    "retq": BRANCH | Kind.RETURN | LOAD,
}


@pytest.fixture
def assemble(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a shared library of lines of assembly in section .text."""

    def run(lines: str) -> Path:
        source, binary = tmp_path / "code.s", tmp_path / "code"
        source.write_text(f".text\n{lines}\n")
        flags = ["-shared", "-nostdlib", "-fuse-ld=lld"]
        run_command([stock_tool("clang"), *flags, source, "-o", binary], timeout_s=60)
        return binary

    return run


def decoded(binary: Path) -> list[Instruction]:
    code = MachineCode.read(binary)
    return [one for start, end in code.parts for one in code.instructions(start, end)]


def test_kinds(assemble: Callable[[str], Path]) -> None:
    found = decoded(assemble("\n".join([*KINDS, "behind: nop"])))
    *known, behind = found
    assert dict(zip(KINDS, (one.kind for one in known), strict=True)) == KINDS
    for text, one, after in zip(KINDS, known, found[1:], strict=True):
        assert one.address + one.length == after.address
        assert one.target == (behind.address if text.endswith("behind") else None), text
        assert one.leaves == text.startswith(("jmp", "ret")), text


def test_mnemonics_tell_sizes_and_prefixes(assemble: Callable[[str], Path]) -> None:
    lines = ["movq %rax, %rcx", "movl %eax, %ecx", "rep movsb", "lock incl (%rdi)", "retq"]
    mnemonics = [one.mnemonic for one in decoded(assemble("\n".join(lines)))]
    assert mnemonics == ["movq", "movl", "rep movsb", "lock incl", "retq"]


def test_what_is_no_instruction_is_passed_over(assemble: Callable[[str], Path]) -> None:
    """Bytes that mean nothing, zeros that fill, and data with a name."""
    lines = """
      nop
      .byte 0x06
      incl %eax
      jmp *%rax
      .zero 12
      addb %al, (%rax)
      retq
      .type table,@object
      table: .byte 0x90, 0x90, 0x90
      .type after,@function
      after: nop
      .zero 9
    """
    found = [one.mnemonic for one in decoded(assemble(lines))]
    assert found == ["nop", "incl", "jmpq", "addb", "retq", "nop"]


def test_llvm_finds_the_same_instructions(workload: Path) -> None:
    command = [str(stock_tool("llvm-objdump")), "-d", "--no-show-raw-insn", str(workload)]
    listing = run_command(command, timeout_s=60).stdout
    shown = re.findall(r"^ +([0-9a-f]+):\s+(\S+)", listing, re.MULTILINE)
    found = decoded(workload)
    assert [one.address for one in found] == sorted(int(address, 16) for address, _ in shown)
    calls = {int(address, 16) for address, mnemonic in shown if mnemonic.startswith("call")}
    assert calls == {one.address for one in found if one.kind & Kind.CALL}


def test_not_an_x86_binary(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with pytest.raises(BinaryError, match="text: not an ELF file"):
        disassemble(tmp_path / "text")
    (tmp_path / "arm.s").write_text("ret\n")
    flags = ["--target=aarch64-linux-gnu", "-c"]
    run_command([stock_tool("clang"), *flags, tmp_path / "arm.s", "-o", tmp_path / "arm.o"])
    with pytest.raises(BinaryError, match=r"arm\.o: not an x86-64 binary"):
        disassemble(tmp_path / "arm.o")


def test_a_binary_without_code(assemble: Callable[[str], Path]) -> None:
    with pytest.raises(BinaryError, match="holds no code"):
        disassemble(assemble(".data\n.quad 1"))


def test_small_blocks(workload: Path) -> None:
    code = disassemble(workload)
    assert code.addresses == sorted(set(code.addresses))
    assert len(code.kinds) == len(code.blocks) == len(code.addresses)
    for index in range(len(code.addresses)):
        members = code.members(index)
        assert index in members
        # A branch ends its block.
        assert not any(code.kinds[member] & BRANCH for member in members[:-1])
    assert code.index(code.addresses[5]) == 5
    assert code.index(code.addresses[5] + 10**9) is None
    assert code.containing(code.addresses[5]) == 5
    assert code.containing(0) is None
