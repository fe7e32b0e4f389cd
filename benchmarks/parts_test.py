# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a real run add up to the run."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.parts import PartsError, executed
from benchmarks.timing import Stopwatch
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.trace.qemu import SyncPoints, read_sync_points, record
from compiler_opt_perf.trace.statistics import block_counts
from compiler_opt_perf.trace.trace_file import Trace

pytestmark = pytest.mark.compiler

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
        times, faults = stopwatch.run([program], 0).times, stopwatch.faults([program], 0)
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
