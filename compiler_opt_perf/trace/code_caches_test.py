# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The caches of code, against their definition and on runs of a program."""

from pathlib import Path

import numpy as np
import pytest
from absl import logging

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.leb128 import read_leb128s
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.trace import windows as module
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.native import CodeCaches, Numbers
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.trace_file import SAMPLE_FETCHES, Trace
from compiler_opt_perf.trace.windows import FORMAT, SAMPLE_BLOCKS, samples, write_windows

pytestmark = pytest.mark.compiler

SOURCE = Path(__file__).parent / "testdata" / "large_code.c"


def table_of(addresses: list[int], sizes: list[int]) -> BlockTable:
    zeros = np.zeros(len(addresses), np.uint32)
    return BlockTable(
        np.array(addresses, np.uint64),
        np.array(sizes, np.uint32),
        zeros,
        zeros,
        np.array(addresses[:1], np.uint64),
        ("f",),
    )


class Lru:
    """The definition of a cache."""

    def __init__(self, sets: int):
        self.sets: list[list[int]] = [[] for _ in range(sets)]

    def misses(self, entry: int) -> bool:
        own = self.sets[entry % len(self.sets)]
        missing = entry not in own
        if not missing:
            own.remove(entry)
        own.append(entry)
        del own[:-8]
        return missing


def expected(table: BlockTable, numbers: Numbers) -> list[list[int]]:
    code, pages, decoded = Lru(64), Lru(8), Lru(32)
    last = -1
    rows = []
    for number in numbers.tolist():
        row = [0, 0, 0]
        rows.append(row)
        if number == len(table) or not table.size[number]:
            continue
        begin, size = int(table.address[number]), int(table.size[number])
        for line in range(begin // 64, (begin + size - 1) // 64 + 1):
            row[0] += code.misses(line) and line not in (last, last + 1)
            row[1] += pages.misses(line // 64)
            row[2] += decoded.misses(line)
            last = line
    return rows


def test_caches_forget_what_was_used_least_recently() -> None:
    seed = 7
    logging.info("seed %d", seed)
    generator = np.random.default_rng(seed)
    # Blocks of up to 5 lines in 800 KB, some empty, and some at the same place.
    sizes = generator.integers(0, 300, 1500) * generator.integers(0, 2, 1500)
    table = table_of(
        sorted(generator.integers(1 << 22, (1 << 22) + 800_000, 1500).tolist()), sizes.tolist()
    )
    # Stretches of neighbours, far jumps, and gaps.
    starts = generator.integers(0, 1501, 4000)
    numbers = np.minimum(np.add.outer(starts, np.arange(5)).ravel(), 1500).astype(np.uint32)
    caches = CodeCaches(table)
    found = np.concatenate([caches.add(numbers[:7001]), caches.add(numbers[7001:])])
    rows = expected(table, numbers)
    assert found.tolist() == rows
    assert (np.count_nonzero(found, axis=0) > 100).all()
    assert len(np.unique(found[:, 2])) > 3


def test_loops_stay_in_what_holds_them() -> None:
    # Loops over blocks of 64 bytes, each two lines from the next: nothing is prefetched.
    def misses_of_a_turn(kib: int) -> list[int]:
        blocks = kib << 3
        table = table_of([128 * block for block in range(blocks)], [64] * blocks)
        caches = CodeCaches(table)
        turn = np.arange(blocks, dtype=np.uint32)
        caches.add(turn)
        return [int(sum_) * 100 // blocks for sum_ in caches.add(turn).sum(axis=0)]

    # Every second line, so that half of the sets serve.
    assert misses_of_a_turn(16) == [0, 0, 0]
    assert misses_of_a_turn(32) == [0, 0, 100]
    assert misses_of_a_turn(64) == [100, 0, 100]
    # A page has 32 of the blocks.
    assert misses_of_a_turn(512) == [100, 3, 100]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A run that calls functions of 60 KiB of code in turn, and then one of them many times."""
    folder = tmp_path_factory.mktemp("large")
    options = ("-O1", "-fbasic-block-address-map", "-Wl,--build-id")
    run_command([stock_tool("clang"), *options, SOURCE, "-o", folder / "large"], timeout_s=120)
    return record(folder / "large", ["20", "10000"], folder / "run.bbtrace")


def test_each_sample_tells_what_it_missed(
    large: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Samples that lie apart, some of them in two records of the trace.
    monkeypatch.setattr(module, "SAMPLES", 60)
    write_windows(large, 1, tmp_path / "w.bbwindows")
    (stream,) = large.streams.values()
    numbers = np.concatenate(list(large.pieces(stream)))
    rows = np.array(expected(large.table, numbers))
    loaded = Trace.load(tmp_path / "w.bbwindows", format_=FORMAT)
    records = [record for record in loaded.records if record.kind == SAMPLE_FETCHES]
    places = [begin for begin, _, _ in samples(large)]
    assert len(records) == len(places) > 30
    large_code = []
    for number, (begin, one) in enumerate(zip(places, records, strict=True)):
        written = read_leb128s(loaded.content(one)).reshape(-1, 4).astype(np.int64)
        found = np.zeros((len(numbers[begin : begin + SAMPLE_BLOCKS]), 3), np.int64)
        found[np.cumsum(written[:, 0])] = written[:, 1:]
        assert np.array_equal(found, rows[begin : begin + SAMPLE_BLOCKS])
        assert (one.count, one.stream) == (len(written), number)
        large_code.append(found.sum(axis=0))
    # All functions in turn miss each time, the loop misses nothing.
    lines, _, decoded = large_code[len(places) // 4].tolist()
    assert lines > 150 and decoded > 400
    assert not large_code[-2].any()
