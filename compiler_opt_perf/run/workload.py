# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program under a tool that watches it: a profiler, a simulator, a tracer."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.run.errors import UserError

_SECONDS_BETWEEN_REPORTS = 10.0


class WorkloadError(UserError):
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
        # Links stay as they are: some programs look at the name that they are called by.
        return [str(self.program.absolute()), *self.arguments]


@dataclass(frozen=True)
class Finished:
    """How a run ended.

    Attributes:
      pid: of the tool, which the program may share.
      status: exit status; negative is a signal's number.
      timed_out: it was killed at its time limit.
      seconds: wall time.
      processor_seconds: user and system time of it and of the processes that it waited for.
      peak_mib: largest resident memory of any of these, MiB, or that of this process until it
        started them, if larger: the kernel keeps the mark when a child begins another program.
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
            ended = _ends(process.pid, run.timeout_s, report)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # What it took by itself: a sum over all children has those of before, too.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    return Finished(
        pid=process.pid,
        status=process.returncode if ended else -signal.SIGKILL,
        timed_out=not ended,
        seconds=time.monotonic() - start,
        processor_seconds=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss / 1024,
    )


def _ends(pid: int, timeout_s: float | None, report: Callable[[float], None]) -> bool:
    """Waits for the end of a child process, and leaves its status; False at the time limit."""
    start = time.monotonic()
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while True:
            wait_s = _SECONDS_BETWEEN_REPORTS
            if timeout_s is not None:
                left_s = timeout_s - (time.monotonic() - start)
                if left_s <= 0:
                    return False
                wait_s = min(wait_s, left_s)
            if poll.poll(1e3 * wait_s):
                return True
            report(time.monotonic() - start)
    finally:
        os.close(descriptor)
