# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of real runs: they add up to the run, and what cannot be used is named."""

import json
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.blocks.block_file import Cpu
from compiler_opt_perf.blocks.run_parts import (
    Head,
    Part,
    PartsError,
    RunBlock,
    RunParts,
    executed,
    read_parts,
    write_parts,
)
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.json_text import JsonError
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.timing import Stopwatch
from compiler_opt_perf.trace.qemu import SyncPoints, read_sync_points, record
from compiler_opt_perf.trace.statistics import block_counts
from compiler_opt_perf.trace.trace_file import Trace

# Sorts and allocates by turns; the numbers depend on nothing. What qsort does is elsewhere.
_PROGRAM = """
#include <stdlib.h>
static int compare(const void *l, const void *r) { return *(const int *)l - *(const int *)r; }
static int Numbers[3000];
__attribute__((noinline)) static unsigned mix(unsigned n) {
  unsigned State = 1;
  for (unsigned i = 0; i < n; ++i)
    State = State * 1664525 + (State % 7 == 3 ? 99 : 1013904223);
  return State;
}
int main(void) {
  unsigned Sum = 0;
  for (int Turn = 0; Turn < 4; ++Turn) {
    Sum += mix(20000u << Turn);
    for (int i = 0; i < 640; ++i)
      free(malloc(10));
    for (int i = 0; i < 3000; ++i)
      Numbers[i] = (int)(mix(3) * (unsigned)i % 1009);
    qsort(Numbers, 3000, sizeof *Numbers, compare);
  }
  return Sum == 1;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    (folder / "program.c").write_text(_PROGRAM)
    options = ("-O2", "-fno-builtin", "-fuse-ld=lld", "-Wl,--build-id")
    run_command(
        [
            *(stock_tool("clang"), *options, "-fbasic-block-address-map"),
            *(folder / "program.c", "-o", folder / "program"),
        ]
    )
    return folder / "program"


@pytest.fixture(scope="module")
def trace(program: Path) -> Trace:
    with Stopwatch() as stopwatch:
        points = SyncPoints(stopwatch.library, program.with_name("moments"))
        return record(program, [], program.with_name("run.bbtrace"), sync_points=points)


def test_moments_are_those_of_a_timed_run(program: Path, trace: Trace) -> None:
    noted = read_sync_points(program.with_name("moments"))
    with Stopwatch() as stopwatch:
        times, faults = stopwatch.times([program], 0), stopwatch.faults([program], 0)
    assert len(noted) == len(times) == len(faults)
    for column in (noted["blocks"].astype(int), noted["elsewhere"].astype(int), faults):
        assert (np.diff(column) >= 0).all()
    assert noted["blocks"][-1] <= trace.total
    assert faults[-1] > faults[0] > 0
    # Of each turn ten moments; between those of two turns the C library sorts.
    elsewhere = np.diff(noted["elsewhere"].astype(int))
    assert (elsewhere > 100_000).sum() == 4


def test_parts_add_up_to_the_run(program: Path, trace: Trace) -> None:
    moments = program.with_name("moments")
    noted = read_sync_points(moments)
    blocks = noted["blocks"].astype(int)
    # Before each turn's allocations, and the ends.
    jumps = np.flatnonzero(np.diff(blocks) > 10_000)
    ends = [0, *(int(one) + 1 for one in jumps), len(noted) - 1]
    found = executed(trace, moments, ends, len(noted))
    assert np.array_equal(found.counts.sum(axis=0), block_counts(trace))
    assert found.elsewhere.sum() == noted["elsewhere"][-1] - noted["elsewhere"][0]
    table = trace.table
    (mix,) = (number for number, name in enumerate(table.names) if name == "mix")
    turns = found.counts[:, table.function == mix].sum(axis=1)
    # Each turn mixes twice as much as the one before; the last part has none of that.
    assert turns[1:4] / turns[:3] == pytest.approx(2, rel=0.1)
    whole = executed(trace, moments, [0, -1], 0)
    assert whole.mispredicted[0] == found.mispredicted.sum() > 0
    assert whole.taken[0] == found.taken.sum() > 100_000


def test_other_moments_and_threads_are_named(program: Path, trace: Trace) -> None:
    moments = program.with_name("moments")
    with pytest.raises(PartsError, match="moments while it was recorded, 7 when it was timed"):
        executed(trace, moments, [0, -1], 7)
    cut = moments.with_name("cut")
    cut.write_bytes(moments.read_bytes()[:-3])
    with pytest.raises(Exception, match="not a file of sync points; record the run again"):
        executed(trace, cut, [0, -1], 0)


def parts() -> RunParts:
    head = Head(
        program="lua",
        build_id="0a",
        command=("script.lua",),
        cpu=Cpu("a CPU", "znver3", 25, 1, 1),
        hertz=3.2e9,
        rounds=15,
        blocks=2,
        parts=2,
    )
    blocks = (
        RunBlock(function="f", id=3, address=4096, code="488b07c3", pmu={"l1_miss": (0.25, None)}),
        RunBlock(function="g", id=0, address=4100, code=""),
    )
    fields = {"faults": 2, "elsewhere": 5, "mispredicted": 1, "taken": 7}
    return RunParts(
        head,
        blocks,
        (
            Part(seconds=0.001, executed=((0, 5), (1, 2)), **fields),
            Part(seconds=0.002, executed=((1, 9),), **fields),
        ),
    )


def test_a_file_of_parts(tmp_path: Path) -> None:
    path = tmp_path / "lua.parts"
    write_parts(path, parts())
    found = read_parts(path)
    assert found == parts()
    assert found.executions().tolist() == [[5, 2], [0, 9]]
    assert found.column("seconds").tolist() == [0.001, 0.002]
    assert found.known("l1_miss").tolist() == [0.25, 0]


@pytest.mark.parametrize(
    ("line", "change", "error", "message"),
    [
        (0, {"version": 9}, JsonError, r"lua\.parts:1: .*version"),
        (0, {"parts": 3}, PartsError, r"lua\.parts: has 5 lines.*2 blocks and 3 parts"),
        (1, {"code": "4"}, JsonError, r"lua\.parts:2: .*code: expected hexadecimal"),
        (1, {"pmu": {"l1_miss": [-1]}}, JsonError, r"lua\.parts:2: .*l1_miss"),
        (3, {"seconds": -1}, JsonError, r"lua\.parts:4: .*seconds"),
        (4, {"executed": [[2, 1]]}, PartsError, r"lua\.parts:5: executes a block that the file"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, line: int, change: dict[str, object], error: type[Exception], message: str
) -> None:
    path = tmp_path / "lua.parts"
    write_parts(path, parts())
    lines = path.read_text().splitlines()
    lines[line] = json.dumps(json.loads(lines[line]) | change)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(error, match=message):
        read_parts(path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(PartsError, match="cannot be read"):
        read_parts(tmp_path / "none.parts")
    (tmp_path / "empty.parts").write_text("")
    with pytest.raises(JsonError, match=r"empty\.parts:1"):
        read_parts(tmp_path / "empty.parts")
