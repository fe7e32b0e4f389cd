# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import sys

import numpy as np
import pytest

from compiler_opt_perf.cost.timing import Stopwatch, boundaries, processor_seconds
from compiler_opt_perf.execution.command import CommandError

_BUSY = "import time\nwhile time.process_time() < 0.2: pass"
# Python asks for the processor's time without the C library's clock(), but reads with its read().
_READS = """
import os
file = os.open("/dev/zero", os.O_RDONLY)
for _ in range(5):
    os.read(file, 10)
    sum(range(200000))
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


def test_a_stopwatch_stops_at_reads() -> None:
    processor = max(os.sched_getaffinity(0))
    with Stopwatch() as stopwatch:
        program = [sys.executable, "-S", "-E"]
        without = stopwatch.times([*program, "-c", "pass"], processor)
        times = stopwatch.times([*program, "-c", _READS], processor)
        again = stopwatch.times([*program, "-c", _READS], processor)
        with pytest.raises(CommandError, match="false"):
            stopwatch.times(["false"], processor)
    assert len(times) == len(again) == len(without) + 5
    assert (np.diff(times) >= 0).all() and times[0] >= 0


def test_boundaries_are_far_enough_apart() -> None:
    times = np.array([1.0, 1.4, 1.9, 2.1, 2.15, 3.3, 3.35, 3.4])
    assert boundaries(times, 1.0).tolist() == [0, 3, 7]
    assert boundaries(times, 0.04).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert boundaries(times, 9.0).tolist() == [0, 7]
