# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program under a tool that watches it: a profiler, a simulator, a tracer."""

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SECONDS_BETWEEN_REPORTS = 10.0


class WorkloadError(Exception):
    """A run that cannot be started: one of its files cannot be opened."""


@dataclass(frozen=True)
class Run:
    """A run of a program: what it is given, and how it should end.

    Attributes:
      program: an executable.
      arguments: of the program.
      stdin: its standard input; empty when None.
      stdout: where its standard output goes; discarded when None.
      cwd: the working directory it runs in; this process's when None.
      env: variables added to this process's environment.
      timeout_s: wall-clock limit in seconds; None for no limit.
      expected_status: the exit status of a run as it should be.
    """

    program: Path
    arguments: Sequence[str] = ()
    stdin: Path | None = None
    stdout: Path | None = None
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    timeout_s: float | None = None
    expected_status: int = 0

    @property
    def name(self) -> str:
        """What to call the program in messages."""
        return self.program.name

    @property
    def command(self) -> list[str]:
        """The program and its arguments, to be run in any folder."""
        return [str(self.program.resolve()), *self.arguments]


@dataclass(frozen=True)
class Finished:
    """How a run ended.

    Attributes:
      pid: of the tool, which the program may share.
      status: exit status; negative is a signal's number.
      timed_out: it was killed at its time limit.
      seconds: wall time.
      processor_seconds: user and system time of all child processes meanwhile.
      peak_mib: largest resident memory of any child process so far, MiB.
    """

    pid: int
    status: int
    timed_out: bool
    seconds: float
    processor_seconds: float
    peak_mib: float


def run_workload(
    run: Run, argv: Sequence[str], diagnostics: Path, report: Callable[[float], None]
) -> Finished:
    """Runs `argv`, and kills whatever of it is left at the end: forked processes may still run.

    Args:
      run: files, folder, environment and time limit.
      argv: tool, program and arguments.
      diagnostics: file for the standard error.
      report: called every so often while it runs, with the seconds since the start.

    Raises:
      WorkloadError: a file cannot be opened.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with contextlib.ExitStack() as files:
        try:
            process = subprocess.Popen(
                # The run ends with us, even if we are killed.
                ["setpriv", "--pdeathsig", "KILL", *argv],
                stdin=files.enter_context(open(run.stdin or os.devnull, "rb")),
                stdout=files.enter_context(open(run.stdout or os.devnull, "wb")),
                stderr=files.enter_context(diagnostics.open("wb")),
                cwd=run.cwd,
                env={**os.environ, **run.env} if run.env else None,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkloadError(f"{error.filename}: cannot be opened: {error.strerror}") from error
        start = time.monotonic()
        try:
            status = _wait(process, run.timeout_s, report)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Finished(
        pid=process.pid,
        status=-signal.SIGKILL if status is None else status,
        timed_out=status is None,
        seconds=time.monotonic() - start,
        processor_seconds=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        peak_mib=after.ru_maxrss / 1024,
    )


def _wait(
    process: subprocess.Popen[bytes], timeout_s: float | None, report: Callable[[float], None]
) -> int | None:
    """Waits for the end of `process`; returns its status, or None at the time limit."""
    start = time.monotonic()
    while True:
        wait_s = _SECONDS_BETWEEN_REPORTS
        if timeout_s is not None:
            left_s = timeout_s - (time.monotonic() - start)
            if left_s <= 0:
                return None
            wait_s = min(wait_s, left_s)
        try:
            return process.wait(wait_s)
        except subprocess.TimeoutExpired:
            report(time.monotonic() - start)
