# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of compiled code, and which of them can be measured."""

from pathlib import Path

import pytest

from compiler_opt_perf.blocks.block_code import (
    Block,
    canonical,
    distinct,
    find_blocks,
    request,
)
from compiler_opt_perf.blocks.block_file import BlockFileError
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

SOURCE = """\
        .text
        .globl first, second
        .type first, @function
        .type second, @function
first:  mov counter(%rip), %rax
        test %rax, %rax
        je 1f
        add %rcx, %rax
        call second
        imul %rax, %rax
1:      lea 8(%rax), %rdx
        ret
second: mov other(%rip), %rax
        test %rax, %rax
        jne first
        ret
"""


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects")
    (folder / "a.s").write_text(SOURCE)
    run_command([stock_tool("clang"), "-c", "a.s", "-o", "a.o"], cwd=folder)
    data = ".data\n.globl counter, other\ncounter: .quad 1\nother: .quad 2\n"
    (folder / "b.s").write_text(data)
    run_command([stock_tool("clang"), "-c", "b.s", "-o", "b.o"], cwd=folder)
    words = ["--entry=first", "a.o", "b.o", "-o", "linked"]
    run_command([stock_tool("ld.lld"), *words], cwd=folder)
    return folder


@pytest.mark.compiler
def test_blocks_end_at_jumps_calls_and_where_jumps_lead(objects: Path) -> None:
    blocks = list(find_blocks({"p": [objects / "linked"]}))
    assert [one.function for one in blocks] == ["first"] * 4 + ["second"]
    assert [one.code.hex() for one in blocks[1:4]] == ["4801c8", "480fafc0", "488d5008"]
    assert blocks[0].code[:3] == b"\x48\x8b\x05" and blocks[0].code[7:].hex() == "4885c0"
    assert all(one.program == "p" and one.address for one in blocks)
    # The two that load a variable differ in its distance alone.
    once = distinct(iter(blocks))
    assert [one.occurrences for one in once] == [2, 1, 1, 1]
    assert once[0].function == "first"


@pytest.mark.compiler
def test_objects_are_linked_with_what_they_lack_at_0(objects: Path) -> None:
    blocks = list(find_blocks({"p": [objects / "a.o"]}))
    linked = list(find_blocks({"p": [objects / "linked"]}))
    assert [canonical(a.code) for a in blocks] == [canonical(b.code) for b in linked]


def test_lists_have_a_block_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("4801c8,eigen\n\n90\n")
    found = [Block(b"\x48\x01\xc8", "p"), Block(b"\x90", "p")]
    assert list(find_blocks({"p": [path]})) == found
    path.write_text("4801c8\n4801c\n")
    with pytest.raises(BlockFileError, match=r"list\.csv:2: '4801c' is not a block"):
        list(find_blocks({"": [path]}))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "no instructions"),
        ("90" * 513, "too long"),
        ("9048", "no instruction"),
        ("0f05", "system call"),
        ("cd80", "system call"),
        ("cc", "system call"),
        ("f4", "privileged instruction"),
        ("0f0b", "illegal instruction"),
        ("ffd0", "jump, call or return"),
        ("7502", "jump, call or return"),
        ("c3", "jump, call or return"),
        ("d9c0", "x87 or MMX"),
        ("0f6fc1", "x87 or MMX"),
        ("0fa2", "unsupported instruction"),
        ("9d", "unsupported instruction"),
        ("67488b0500000000", "unsupported instruction"),
        ("64488b042528000000", "thread-local memory"),
    ],
)
def test_what_cannot_be_measured_is_told(code: str, reason: str) -> None:
    assert request(bytes.fromhex(code)) == ("", reason)


def test_operands_relative_to_the_instruction_pointer_have_one_target() -> None:
    assert request(bytes.fromhex("4801c8")) == ("4801c8", "")
    # 8 bytes at 0x1000 behind the instruction's end, which makes them aligned.
    load, store = "488b0500100000", "890d03000000"
    line, _ = request(bytes.fromhex(load + store))
    assert line == f"{load}{store} 3:7:{0x1000} 9:13:16"
    # Backwards, as 2^24 has it.
    assert request(bytes.fromhex("488b05f0ffffff"))[0].endswith(f" 3:7:{(1 << 24) - 16}")
