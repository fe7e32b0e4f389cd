# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of measured blocks: ours and BHive's."""

from pathlib import Path

import pytest

from compiler_opt_perf.blocks.block_code import find_blocks
from compiler_opt_perf.blocks.block_file import (
    BlockFileError,
    Cpu,
    MeasuredBlock,
    MeasuredBlocks,
    read_blocks,
    write_bhive,
    write_blocks,
)
from compiler_opt_perf.run.json_text import JsonError

CPU = Cpu("a CPU", "znver3", 25, 1, 1)
ROWS = [
    MeasuredBlock(
        code="4801c8", cycles=1.0125, agreeing=2, rounds=3, program="lua", function="f", address=16
    ),
    MeasuredBlock(code="0f05", dropped="system call", occurrences=3),
    MeasuredBlock(code="90", dropped="unstable"),
    MeasuredBlock(code="cc", dropped="system call"),
]


def write(path: Path) -> Path:
    write_blocks(path, MeasuredBlocks(CPU, 0.17, ROWS))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    blocks = read_blocks(write(tmp_path / "a.blocks"))
    assert (blocks.cpu, blocks.nop_cycles, blocks.rows) == (CPU, 0.17, ROWS)
    assert blocks.measured() == ROWS[:1]
    assert blocks.dropped() == {"system call": 2, "unstable": 1}


def test_bhives_lists_are_of_100_executions(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write_bhive(path, ROWS)
    assert path.read_text() == "4801c8,101.25\n"
    blocks = read_blocks(path)
    assert blocks.cpu is None
    assert blocks.rows == [MeasuredBlock(code="4801c8", cycles=1.0125)]


@pytest.mark.parametrize(
    "text",
    [
        "4801c8,101.25\n",
        "4801C8,101.25\n",
        "4801c8,101.25\r\n",
        "4801c8,101.25,1,a comment\n",
        " 4801c8 , 101.25 \n\n",
        ",\n4801c8,101.25\n,99\n",
    ],
)
def test_lists_have_one_reader(tmp_path: Path, text: str) -> None:
    """What is measured, and what models are judged by, is read alike."""
    path = tmp_path / "a.csv"
    path.write_text(text, newline="")
    assert read_blocks(path).rows == [MeasuredBlock(code="4801c8", cycles=1.0125)]
    assert [block.code.hex() for block in find_blocks({"p": [path]})] == ["4801c8"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4801c8,101\n4801c8,x\n", r"a\.csv:2: 'x': expected code"),
        ("4801c8\n", r"a\.csv:1: "),
        ("4801c,3\n", r"a\.csv:1: "),
        ("4801c8,-3\n", r"a\.csv:1: .*above 0"),
        ("4801c8,nan\n", r"a\.csv:1: "),
        (",3\n", r"a\.csv: is empty"),
        ("", r"a\.csv: is empty"),
    ],
)
def test_bad_lists_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(BlockFileError, match=message):
        read_blocks(path)


@pytest.mark.parametrize(
    "content",
    [
        # A record of TensorFlow's, as gematria's data sets have them.
        b"\x05\0\0\0\0\0\0\0\xd2\x02\x96\x49\x0a\x03abc\x01\x02\x03\x04",
        b"\x7fELF\x02\x01\x01\0\n\0\n",
        b"\x28\xb5\x2f\xfd\x04\x00\xff\xfe",
        b"\0\0\0\0",
    ],
)
def test_other_files_are_no_lists(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.blocks"
    path.write_bytes(content)
    with pytest.raises(BlockFileError, match=r"a\.blocks:1: .*expected "):
        read_blocks(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version":1', '"version":2', r"a\.blocks:1: \$\.version: expected 1, found 2"),
        ("measured-blocks", "trace", r"a\.blocks:1: \$\.format"),
        ('"4801c8"', '"4801C8"', r"a\.blocks:2: \$\.code: expected hexadecimal digits"),
        ('"cycles":1.0125', '"cycles":-1', r"a\.blocks:2: \$\.cycles: expected"),
        ('"cycles":1.0125,', "", r"a\.blocks:2: \$\.cycles: expected either cycles or a reason"),
        ('"agreeing":2', '"agreeing":4', r"a\.blocks:2: \$\.agreeing: more than the 3 rounds"),
        ('{"code":"90","dropped":"unstable"}\n', "", r"has 3 blocks, 1 of .* says 4 .*truncated"),
        ('"unstable"}', '"unstable"', r"a\.blocks:4:2:1: not JSON"),
    ],
)
def test_damage_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path / "a.blocks")
    text = path.read_text()
    # Where the rows have the same, there.
    head, _, rows = text.partition("\n")
    damaged = f"{head}\n{rows.replace(old, new)}" if old in rows else text.replace(old, new)
    assert damaged != text
    path.write_text(damaged)
    with pytest.raises((BlockFileError, JsonError), match=message):
        read_blocks(path)
