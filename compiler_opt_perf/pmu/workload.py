# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the program that is profiled, inside the tool that counts."""

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.pmu.errors import PmuError

_SECONDS_BETWEEN_REPORTS = 10.0


@dataclass(frozen=True)
class Finished:
    """How a run ended.

    Attributes:
      pid: of the tool, which the program may share.
      status: exit status; negative is a signal's number.
      seconds: wall time.
      processor_seconds: user and system time of all child processes meanwhile.
      peak_mib: largest resident memory of any child process so far, MiB.
    """

    pid: int
    status: int
    seconds: float
    processor_seconds: float
    peak_mib: float


def run_workload(
    argv: Sequence[str],
    name: str,
    manner: str,
    *,
    diagnostics: Path,
    stdin: Path | None = None,
    stdout: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> Finished:
    """Runs `argv`, and kills whatever of it is left at the end.

    Args:
      argv: tool, program and arguments.
      name: what to call the program in messages.
      manner: how it runs, such as "under callgrind".
      diagnostics: file for its standard error.
      stdin: its standard input; empty when None.
      stdout: where its standard output goes; discarded when None.
      cwd: the working directory it runs in.
      env: variables added to this process's environment.
      timeout_s: wall-clock limit in seconds.

    Raises:
      PmuError: a file cannot be opened, or the run took too long.
    """
    start = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with contextlib.ExitStack() as files:
        try:
            source = files.enter_context(open(stdin or os.devnull, "rb"))
            sink = files.enter_context(open(stdout or os.devnull, "wb"))
            process = subprocess.Popen(
                # The run ends with us, even if we are killed.
                ["setpriv", "--pdeathsig", "KILL", *argv],
                stdin=source,
                stdout=sink,
                stderr=files.enter_context(diagnostics.open("wb")),
                cwd=cwd,
                env={**os.environ, **env} if env else None,
                start_new_session=True,
            )
        except OSError as error:
            raise PmuError(f"{error.filename}: cannot be opened: {error.strerror}") from error
        try:
            status = _wait(process, f"{name}: ", manner, timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Finished(
        process.pid,
        status,
        time.monotonic() - start,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        after.ru_maxrss / 1024,
    )


def _wait(
    process: subprocess.Popen[bytes], label: str, manner: str, timeout_s: float | None
) -> int:
    """Waits for the end of `process`, saying now and then that it still runs."""
    start = time.monotonic()
    while True:
        elapsed = time.monotonic() - start
        if timeout_s is not None and elapsed >= timeout_s:
            raise PmuError(
                f"{label}killed after its limit of {timeout_s:g} s {manner}; "
                "give it less to do or more time"
            )
        wait_s = _SECONDS_BETWEEN_REPORTS
        if timeout_s is not None:
            wait_s = min(wait_s, timeout_s - elapsed)
        try:
            return process.wait(wait_s)
        except subprocess.TimeoutExpired:
            logging.info("%srunning %s for %.0f s", label, manner, time.monotonic() - start)
