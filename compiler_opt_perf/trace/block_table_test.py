# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.binary.elf import BinaryError
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.trace.block_table import BlockTable, read_block_table
from compiler_opt_perf.trace.conftest import Build
from compiler_opt_perf.trace.errors import TraceError


# What the compiler can say of blocks besides, each in another place of the map.
@pytest.mark.compiler
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("-fbasic-block-sections=all",),
        ("-mllvm", "-pgo-analysis-map=func-entry-count,bb-freq,br-prob"),
        ("-mllvm", "-emit-bb-hash", "-mllvm", "-pgo-analysis-map=br-prob"),
    ],
    ids=["blocks", "sections", "frequencies", "hashes"],
)
def test_llvm_reads_the_same(build: Build, flags: tuple[str, ...]) -> None:
    program = build(*flags)
    options = ("--bb-addr-map", "--elf-output-style=JSON")
    command = [str(stock_tool("llvm-readobj")), *options, str(program)]
    (shown,) = json.loads(run_command(command, timeout_s=60).stdout)
    expected = {
        (
            function["Function"]["Name"],
            entry_range["Base Address"] + block["Offset"],
            block["Size"],
            block["ID"],
        )
        for function in shown["BBAddrMap"]
        for entry_range in function["Function"]["BB Ranges"]
        for block in entry_range["BB Entries"]
    }
    table = read_block_table(program)
    found = {
        (table.names[function], address, size, block_id)
        for address, size, block_id, function in zip(
            table.address.tolist(),
            table.size.tolist(),
            table.block_id.tolist(),
            table.function.tolist(),
            strict=True,
        )
    }
    assert found == expected
    assert len(found) == len(table)
    assert {"main", "turn", "clear"} < set(table.names)


@pytest.mark.compiler
def test_as_bytes_and_back(program: Path) -> None:
    table = read_block_table(program)
    raw = table.to_bytes()
    again = BlockTable.from_bytes(raw)
    assert again.to_bytes() == raw
    assert again.names == table.names
    for damaged in (raw[:-1], raw[:9], raw[:100], raw + b"x"):
        with pytest.raises(TraceError, match="malformed"):
            BlockTable.from_bytes(damaged)


def test_blocks_without_code() -> None:
    # Of a function's blocks at 0 (no code), 0, 4 (no code, the last); the next one begins at 4.
    table = BlockTable(
        np.array([0, 0, 4, 4], np.uint64),
        np.array([0, 4, 0, 8], np.uint32),
        np.array([0, 1, 2, 0], np.uint32),
        np.array([0, 0, 0, 1], np.uint32),
        np.array([0, 4], np.uint64),
        ("first", "second"),
    )
    addresses, numbers = table.starts()
    assert addresses.tolist() == [0, 0, 4]
    assert numbers.tolist() == [0, 1, 3]
    assert [table.describe(n) for n in (2, 3, 4)] == ["first.2", "second.0", "(gap)"]


@pytest.mark.compiler
def test_stripped_program_keeps_its_blocks(program: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "program"
    command = [
        str(stock_tool("llvm-objcopy")),
        "--strip-all-gnu",
        "--keep-section=.llvm_bb_addr_map",
    ]
    run_command([*command, program, stripped], timeout_s=60)
    table, original = read_block_table(stripped), read_block_table(program)
    assert np.array_equal(table.address, original.address)
    assert all(name.startswith("0x") for name in table.names)


@pytest.mark.compiler
def test_split_functions_and_frequencies(build: Build) -> None:
    plain = read_block_table(build())
    sections = read_block_table(build("-fbasic-block-sections=all"))
    assert set(sections.names) == set(plain.names)
    assert np.all(np.diff(sections.address.astype(np.int64)) >= 0)
    more = read_block_table(build("-mllvm", "-pgo-analysis-map=func-entry-count,bb-freq,br-prob"))
    assert np.array_equal(more.block_id, plain.block_id)


@pytest.mark.compiler
def test_not_fit(build: Build, program: Path, tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match="no basic-block address map.*-fbasic-block-address-map"):
        read_block_table(build(map_flag=""))
    with pytest.raises(BinaryError, match="functions without blocks; compile it without"):
        read_block_table(build("-mllvm", "-basic-block-address-map-skip-bb-entries"))
    with pytest.raises(BinaryError, match="cannot be read: No such file"):
        read_block_table(tmp_path / "absent")
    (tmp_path / "text").write_text("text")
    with pytest.raises(BinaryError, match="not an ELF file"):
        read_block_table(tmp_path / "text")
    source = tmp_path / "unit.c"
    source.write_text("int f(void) { return 1; }")
    subprocess.run([str(stock_tool("clang")), "-c", source, "-o", tmp_path / "unit.o"], check=True)
    with pytest.raises(BinaryError, match="not a linked x86-64 program"):
        read_block_table(tmp_path / "unit.o")


@pytest.mark.compiler
def test_damaged_map(program: Path, tmp_path: Path) -> None:
    section = tmp_path / "map"
    objcopy = str(stock_tool("llvm-objcopy"))
    dump = f"--dump-section=.llvm_bb_addr_map={section}"
    run_command([objcopy, dump, program, tmp_path / "out"], timeout_s=60)
    whole = section.read_bytes()
    for content, message in (
        (whole[:-3], "ends within a function"),
        (b"\x07" + whole[1:], "address map of version 7.*versions 2 to 5 are supported"),
        (whole[:1] + b"\x00\x01" + whole[3:], r"version 5 \(features 0x100\)"),
        # The number of blocks: longer than a number can be, and larger than the file.
        (whole[:11] + b"\xff" * 12, r"damaged: at byte \d+, a number of more than 64 bits"),
        (whole[:11] + b"\xff" * 8 + b"\x01", "ends within a function"),
        # The first block: an id that no block has, and an end beyond the address space.
        (whole[:12] + b"\xff" * 5 + b"\x01" + whole[13:], "damaged: .*more than 32 bits"),
        (whole[:3] + b"\xff" * 8 + whole[11:], "damaged: .*beyond the 64-bit address space"),
    ):
        section.write_bytes(content)
        damaged = tmp_path / "damaged"
        update = f"--update-section=.llvm_bb_addr_map={section}"
        run_command([objcopy, update, program, damaged], timeout_s=60)
        with pytest.raises(BinaryError, match=message):
            read_block_table(damaged)


@pytest.mark.compiler
def test_features_of_later_versions(tmp_path: Path) -> None:
    """What maps of clang 22 have besides, in each block and behind them, is passed over."""
    source = tmp_path / "calls.c"
    source.write_text(
        "volatile int v;\n"
        "__attribute__((noinline)) int f(int x) { return v ? x : x + v; }\n"
        "int main(void) { for (int i = 0; i < f(3); ++i) v = f(v) + f(i); return 0; }\n"
    )
    tables = []
    for options in ([], ["-emit-bb-hash", "-pgo-analysis-map=all"]):
        binary = tmp_path / f"calls{len(options)}"
        words = [word for option in options for word in ("-mllvm", option)]
        flags = ["-O1", "-fbasic-block-address-map", "-fuse-ld=lld"]
        run_command([stock_tool("clang"), *flags, *words, source, "-o", binary], timeout_s=60)
        tables.append(read_block_table(binary))
    plain, featured = tables
    assert len(plain) > 5
    assert plain.names == featured.names
    assert plain.block_id.tolist() == featured.block_id.tolist()
    assert plain.size.tolist() == featured.size.tolist()
