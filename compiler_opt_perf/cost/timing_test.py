# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import sys

import pytest

from compiler_opt_perf.cost.timing import processor_seconds
from compiler_opt_perf.execution.command import CommandError

_BUSY = "import time\nwhile time.process_time() < 0.2: pass"


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
