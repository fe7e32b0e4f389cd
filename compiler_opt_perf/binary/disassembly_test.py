# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.binary.disassembly import Kind, disassemble, kind_of
from compiler_opt_perf.binary.elf import BinaryError

LOAD, STORE, BRANCH = Kind.LOAD, Kind.STORE, Kind.BRANCH


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("movq\t(%rdi,%rax,8), %rax", LOAD),
        ("movq\t%rax, 0x8(%rdi,%rcx,8)", STORE),
        ("movl\t$0x5, (%rsp)", STORE),
        ("addl\t%eax, (%rcx)", LOAD | STORE),
        ("addq\t0x10(%rsp), %rax", LOAD),
        ("cmpb\t$0x7f, (%rdi,%rax)", LOAD),
        ("leaq\t0x8(%rdi), %rax", Kind(0)),
        ("nopw\t%cs:(%rax,%rax)", Kind(0)),
        ("xorl\t%eax, %eax", Kind(0)),
        ("pushq\t%rbp", STORE),
        ("popq\t%rbp", LOAD),
        ("retq", BRANCH | LOAD),
        ("jne\t0x1180 <chase+0x20>", BRANCH | Kind.CONDITIONAL),
        ("jmp\t0x1180 <chase+0x20>", BRANCH),
        ("jmpq\t*%rax", BRANCH | Kind.INDIRECT),
        ("jmpq\t*0x2fe2(%rip)  # 0x4018", BRANCH | Kind.INDIRECT | LOAD),
        ("callq\t0x1030 <qsort@plt>", BRANCH | STORE),
        ("callq\t*0x8(%rsp)", BRANCH | Kind.INDIRECT | STORE | LOAD),
        ("rep\t\tmovsb\t(%rsi), %es:(%rdi)", LOAD | STORE),
        ("movq\t%fs:0x28, %rax", LOAD),
        ("vmovdqu\t%ymm0, (%rdi)", STORE),
        ("prefetcht0\t(%rdi)", Kind(0)),
        ("lock\t\tcmpxchgl\t%ecx, (%rdx)", LOAD | STORE),
    ],
)
def test_kinds(text: str, kind: Kind) -> None:
    assert kind_of(text) == kind


def test_not_an_x86_binary(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with pytest.raises(BinaryError, match="llvm-objdump found no instructions"):
        disassemble(tmp_path / "text")


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
