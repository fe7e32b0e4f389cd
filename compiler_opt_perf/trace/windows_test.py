# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from absl import logging

from compiler_opt_perf.binary.elf import open_elf
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.leb128 import read_leb128, write_leb128s
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.trace_file import BRANCHES, CODE, WINDOWS, Trace
from compiler_opt_perf.trace.trace_writer import write_blocks, write_end, write_record, write_start
from compiler_opt_perf.trace.windows import FORMAT, Windows, samples, write_windows

pytestmark = pytest.mark.compiler


def counted(streams: list[list[int]], length: int, gap: int) -> Counter[tuple[int, ...]]:
    """The definition, word by word."""
    found: Counter[tuple[int, ...]] = Counter()
    for stream in streams:
        before = [gap] * (length - 1)
        for number in stream:
            before = [*before, number]
            if number == gap:
                before = [gap] * (length - 1)
                continue
            found[tuple(before)] += 1
            before = before[1:]
    return found


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_windows_are_counted(trace: Trace, tmp_path: Path, length: int) -> None:
    seed = 11
    logging.info("seed %d", seed)
    generator = np.random.default_rng(seed)
    gap = len(trace.table)
    # Few distinct blocks, so that windows return, and gaps among them.
    streams = [
        generator.choice([0, 1, 5, gap - 1, gap], size, p=[0.4, 0.3, 0.2, 0.05, 0.05])
        for size in (70_000, 3, 1)
    ]
    path = tmp_path / "t.bbtrace"
    with path.open("wb") as out:
        write_start(out, trace.description, trace.table)
        for number, stream in enumerate(streams):
            write_blocks(out, [stream.astype(np.uint32)], number=number, ends=True)
    write_end(path)
    expected = counted([stream.tolist() for stream in streams], length, gap)
    output = tmp_path / "t.bbwindows"
    written = write_windows(Trace.load(path), length, output)
    for windows in (written, Windows.load(output)):
        rows = [tuple(row) for row in windows.blocks.tolist()]
        assert dict(zip(rows, windows.counts.tolist(), strict=True)) == expected
        assert rows == sorted(rows, key=lambda row: (-expected[row], row))


def test_of_a_real_trace(trace: Trace, tmp_path: Path) -> None:
    windows = Windows.count(trace, 4)
    assert int(windows.counts.sum()) == trace.total
    # The loop has two ways a turn: four blocks hold some of the possible histories, not more.
    assert len(windows.counts) < 200
    assert windows.counts[0] > trace.total / 20


@pytest.mark.parametrize(
    "window", [None, "4", 0, 65, 4.0, 1e300, True, [4]], ids=lambda window: repr(window)
)
def test_damaged_descriptions_are_named(trace: Trace, tmp_path: Path, window: object) -> None:
    path = tmp_path / "t.bbwindows"
    with path.open("wb") as stream:
        write_start(stream, trace.description, trace.table, FORMAT, {"window": window, "total": 1})
    with pytest.raises(TraceError, match=r"t\.bbwindows: description: \$\.window: expected"):
        Windows.load(path)


def test_block_numbers_beyond_the_table_are_named(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.bbwindows"
    blocks = len(trace.table)
    # Windows: a count, and a difference in zigzag code. Branches: a difference, and four counts.
    for kind, values, message in (
        (WINDOWS, [1, 2 * blocks + 2], "a block number is larger than the block table"),
        (WINDOWS, [1, 1], "a block number is larger than the block table"),
        (WINDOWS, [1], "malformed"),
        (WINDOWS, [1, 2**72], "malformed: a number of more than 64 bits"),
        (BRANCHES, [blocks, 1, 1, 1, 1], "a block number is larger than the block table"),
        (BRANCHES, [2**64 - 1, 1, 1, 1, 1], "a block number is larger than the block table"),
        (BRANCHES, [1, 1], "malformed"),
    ):
        with path.open("wb") as stream:
            more = {"window": 1, "total": 1}
            write_start(stream, trace.description, trace.table, FORMAT, more)
            place = stream.tell()
            write_record(stream, kind, write_leb128s(values), count=1)
        write_end(path)
        with pytest.raises(TraceError, match=rf"t\.bbwindows: byte {place}: {message}"):
            Windows.load(path)


def test_has_the_code_of_its_samples(trace: Trace, program: Path, tmp_path: Path) -> None:
    write_windows(trace, 1, tmp_path / "t.bbwindows")
    run_command(["objcopy", "-O", "binary", "-j", ".text", program, tmp_path / "text"])
    text = (tmp_path / "text").read_bytes()
    with open_elf(program) as file:
        begin = file.get_section_by_name(".text")["sh_addr"]
    file_ = Trace.load(tmp_path / "t.bbwindows", format_=FORMAT)
    (record,) = [record for record in file_.records if record.kind == CODE]
    raw, place = file_.content(record), 0
    numbers, number = [], 0
    for _ in range(record.count):
        difference, place = read_leb128(raw, place)
        number += difference
        numbers.append(number)
    sampled = {int(number) for _, numbers, _ in samples(trace) for number in numbers}
    assert sampled <= set(numbers) and len(numbers) < len(trace.table)
    for number in numbers:
        address, size = int(trace.table.address[number]), int(trace.table.size[number])
        assert raw[place : place + size] == text[address - begin : address - begin + size]
        place += size
    assert place == len(raw)


def test_bad_use(trace: Trace, tmp_path: Path) -> None:
    for length in (0, 65):
        with pytest.raises(TraceError, match="expected 1 to 64"):
            Windows.count(trace, length)
    with pytest.raises(TraceError, match="must end with .bbwindows"):
        write_windows(trace, 4, tmp_path / "t.bbtrace")
    with pytest.raises(TraceError, match='expected "compiler-opt-perf/block-windows"'):
        Windows.load(trace.path)
    output = tmp_path / "t.bbwindows"
    write_windows(trace, 4, output)
    with pytest.raises(TraceError, match='found "compiler-opt-perf/block-windows"'):
        Trace.load(output)
