# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processor time of real runs."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.execution.command import CommandError


def processor_seconds(argv: Sequence[str | Path], cpu: int | None = None) -> float:
    """Runs a program, its output discarded; returns its user and system time.

    The two are not told apart: the kernel measures their sum, and splits it by sampling.

    Args:
      cpu: the processor that it is bound to; None for any.

    Raises:
      CommandError: it ended with another status than 0.
      OSError: it cannot be started.
    """
    bound = [] if cpu is None else ["taskset", "--cpu-list", str(cpu)]
    words = [*bound, *map(str, argv)]
    null = subprocess.DEVNULL
    with subprocess.Popen(words, stdin=null, stdout=null, stderr=null) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        reason = f"{Path(argv[0]).name}: exit status {process.returncode}"
        raise CommandError("failed", reason, shlex.join(words), returncode=process.returncode)
    return usage.ru_utime + usage.ru_stime
