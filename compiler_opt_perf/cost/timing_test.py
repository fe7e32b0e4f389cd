# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.cost.timing import Stopwatch, boundaries, processor_seconds
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.llvm import stock_tool

_BUSY = "import time\nwhile time.process_time() < 0.2: pass"
_MOMENTS = """
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned Sink;
int main(int argc, char **argv) {
  char Bytes[10];
  for (int I = 0; I < atoi(argv[1]); ++I)
    read(0, Bytes, sizeof Bytes);
  for (int I = 0; I < atoi(argv[2]); ++I)
    clock();
  for (int I = 0; I < atoi(argv[3]); ++I) {
    void *volatile Block = malloc(10);
    Block = realloc(Block, 20);
    free(Block);
  }
  for (int I = 0; I < 1000000; ++I)
    Sink += I;
}
"""


def test_counts_the_processor_time_of_the_run_alone() -> None:
    processor = max(os.sched_getaffinity(0))
    busy = processor_seconds([sys.executable, "-S", "-c", _BUSY], processor)
    assert busy >= 0.2
    assert processor_seconds(["sleep", "0.3"]) < 0.2


def test_binds_the_run_to_the_processor() -> None:
    processor = max(os.sched_getaffinity(0))
    alone = f"import os, sys\nsys.exit(os.sched_getaffinity(0) != {{{processor}}})"
    processor_seconds([sys.executable, "-S", "-c", alone], processor)


def test_a_failed_run_is_no_measurement() -> None:
    with pytest.raises(CommandError, match="false: exit status 1"):
        processor_seconds(["false"])


def test_a_stopwatch_stops_at_reads_clocks_and_allocations(tmp_path: Path) -> None:
    processor = max(os.sched_getaffinity(0))
    source, program = tmp_path / "moments.c", tmp_path / "moments"
    source.write_text(_MOMENTS)
    run_command([stock_tool("clang"), "-O1", source, "-o", program])
    with Stopwatch() as stopwatch:

        def moments(reads: int, clocks: int, allocations: int) -> npt.NDArray[np.float64]:
            return stopwatch.times([program, *map(str, (reads, clocks, allocations))], processor)

        without = len(moments(0, 0, 0))
        assert len(moments(5, 0, 0)) == without + 5
        assert len(moments(0, 7, 0)) == without + 7
        # One in 64 is noted.
        assert len(moments(0, 0, 640)) == without + 20
        times = moments(2, 3, 64)
        with pytest.raises(CommandError, match="false"):
            stopwatch.times(["false"], processor)
    assert (np.diff(times) >= 0).all() and times[0] >= 0


def test_boundaries_are_far_enough_apart() -> None:
    times = np.array([1.0, 1.4, 1.9, 2.1, 2.15, 3.3, 3.35, 3.4])
    assert boundaries(times, 1.0).tolist() == [0, 3, 7]
    assert boundaries(times, 0.04).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert boundaries(times, 9.0).tolist() == [0, 7]
