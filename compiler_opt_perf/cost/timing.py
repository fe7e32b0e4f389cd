# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processor time of real runs."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.llvm import stock_tool

SEGMENTS = Path(__file__).with_name("segments.c")


def processor_seconds(
    argv: Sequence[str | Path], cpu: int | None = None, env: Mapping[str, str] | None = None
) -> float:
    """Runs a program, its output discarded; returns its user and system time.

    The two are not told apart: the kernel measures their sum, and splits it by sampling.

    Args:
      cpu: the processor that it is bound to; None for any.
      env: variables added to this process's environment.

    Raises:
      CommandError: it ended with another status than 0.
      OSError: it cannot be started.
    """
    bound = [] if cpu is None else ["taskset", "--cpu-list", str(cpu)]
    words = [*bound, *map(str, argv)]
    null = subprocess.DEVNULL
    environment = {**os.environ, **(env or {})}
    with subprocess.Popen(words, stdin=null, stdout=null, stderr=null, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        reason = f"{Path(argv[0]).name}: exit status {process.returncode}"
        raise CommandError("failed", reason, shlex.join(words), returncode=process.returncode)
    return usage.ru_utime + usage.ru_stime


class Stopwatch:
    """Times the parts of runs between moments: of reading files, asking for the time, allocating.

    Where a core is shared with others that nobody here knows of, no run of a second is undisturbed,
    but some of the runs are, in each of its parts. Used in a `with` statement.
    """

    def __enter__(self) -> "Stopwatch":
        self._folder = tempfile.TemporaryDirectory(prefix="stopwatch-")
        self._library = Path(self._folder.name) / "segments.so"
        options = ("-O2", "-shared", "-fPIC")
        run_command([stock_tool("clang"), *options, SEGMENTS, "-o", self._library])
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def times(self, argv: Sequence[str | Path], cpu: int) -> npt.NDArray[np.float64]:
        """Runs a program, as processor_seconds; returns its processor time [M] at each moment.

        The first moment is its start, the last its end; a program that does the same has as many.

        Raises:
          CommandError: it ended with another status than 0.
          OSError: it cannot be started, or is not linked with a shared C library.
        """
        output = Path(self._folder.name) / "times"
        output.unlink(missing_ok=True)
        env = {"LD_PRELOAD": str(self._library), "SEGMENTS": str(output)}
        processor_seconds(argv, cpu, env)
        return np.fromfile(output)


def boundaries(times: npt.NDArray[np.float64], shortest: float) -> npt.NDArray[np.int64]:
    """The moments [S + 1], first and last among them, between which `shortest` seconds lie."""
    chosen = [0]
    for moment in range(1, len(times) - 1):
        if min(times[moment] - times[chosen[-1]], times[-1] - times[moment]) >= shortest:
            chosen.append(moment)
    return np.array([*chosen, len(times) - 1])
