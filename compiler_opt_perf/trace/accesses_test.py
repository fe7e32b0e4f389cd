# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.leb128 import write_leb128s
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.trace.accesses import read_stretches
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.windows import SAMPLE_BLOCKS, samples

TABLE = BlockTable(
    address=np.array([0x100, 0x120, 0x200], np.uint64),
    size=np.array([0x20, 0x10, 0x10], np.uint32),
    block_id=np.array([0, 1, 0], np.uint32),
    function=np.array([0, 0, 1], np.uint32),
    entry=np.array([0x100, 0x200], np.uint64),
    names=("caller", "callee"),
)


def encoded(rows: list[tuple[int, int, bool, int]], first: int = 0) -> bytes:
    """A stretch of accesses: blocks that began before each, instruction, kind and address."""
    values: list[int] = []
    instruction = address = 0
    for begun, place, stores, where in rows:
        steps = place - instruction, where - address
        codes = [step << 1 if step >= 0 else -step * 2 - 1 for step in steps]
        values += [begun, codes[0] << 1 | stores, codes[1]]
        instruction, address = place, where
    content = write_leb128s(values)
    return write_leb128s([first, len(content)]) + content


def test_accesses_belong_to_the_latest_execution_of_their_block() -> None:
    # The caller's block calls in its middle; then its second block runs twice.
    raw = encoded(
        [
            (1, 0x104, True, 0x7000),
            (1, 0x208, False, 0x7000),
            (0, 0x118, False, 0x6FF8),
            (1, 0x120, True, 1 << 63),
            (1, 0x120, True, 0x10),
            # Code of no block, and a block that the sample does not reach.
            (0, 0x900, True, 0x20),
            (1, 0x120, True, 0x30),
        ],
        first=1200,
    )
    (stretch,) = read_stretches(raw)
    assert stretch.first == 1200
    rows = stretch.rows(TABLE, np.array([0, 2, 1, 1], np.uint32))
    assert rows.tolist() == [
        [0, 0x4, 1, 0x7000],
        [0, 0x18, 0, 0x6FF8],
        [1, 0x8, 0, 0x7000],
        [2, 0x0, 1, 1 << 63],
        [3, 0x0, 1, 0x10],
    ]
    assert [each.first for each in read_stretches(raw + encoded([], first=2400))] == [1200, 2400]
    for size in range(1, len(raw)):
        with pytest.raises(ValueError):
            read_stretches(raw[:size])


@pytest.mark.compiler
def test_a_real_run_tells_where_it_reads_and_writes(trace: Trace, program: Path) -> None:
    symbols = run_command([stock_tool("llvm-nm"), program]).stdout
    sink = next(int(line.split()[0], 16) for line in symbols.splitlines() if line.endswith(" sink"))
    kinds: set[tuple[int, ...]] = set()
    *whole, last = samples(trace)
    assert len(last[1]) <= SAMPLE_BLOCKS and last[2] is not None
    for _, numbers, rows in whole:
        assert rows is not None and len(numbers) == SAMPLE_BLOCKS
        assert rows[:, 0].max(initial=0) < len(numbers)
        # The program is moved by whole pages. It reads and writes the sink in half of the turns.
        of_sink = rows[rows[:, 3] % 4096 == sink % 4096]
        assert len(of_sink) > 100
        kinds |= {tuple(row) for row in np.diff(of_sink[:, 2].astype(np.int64))[:, None].tolist()}
        assert len(set(of_sink[:, 3].tolist())) == 1
    # Reads and writes take turns.
    assert kinds <= {(1,), (-1,), (0,)}


@pytest.mark.compiler
def test_the_same_run_has_the_same_accesses(program: Path, tmp_path: Path) -> None:
    # Both in the environment of this test: the size of it moves the stack.
    one, other = (record(program, ["turn", "60000"], tmp_path / f"{n}.bbtrace") for n in "12")
    for (_, _, first), (_, _, second) in zip(samples(one), samples(other), strict=True):
        assert first is not None and second is not None and np.array_equal(first, second)
