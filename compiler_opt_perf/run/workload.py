# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a program under a tool that observes it: a profiler, a simulator, a tracer."""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.run.command import CompletedCommand, start_command
from compiler_opt_perf.run.errors import UserError


class WorkloadError(UserError):
    """A file or folder of a run cannot be opened."""


@dataclass(frozen=True)
class Run:
    """A run of a program: its inputs, and its expected exit status.

    Attributes:
      program: an executable.
      arguments: the program's arguments.
      stdin: its standard input; empty when None.
      stdout: where its standard output goes; discarded when None.
      cwd: its working directory; this process's when None.
      env: variables added to this process's environment.
      timeout_s: wall-clock limit in seconds; None for no limit.
      expected_status: the exit status of a successful run.
      inherit_env: whether it gets this process's environment, too.
      ended: called with what a tool took that observed the run.
    """

    program: Path
    arguments: Sequence[str] = ()
    stdin: Path | None = None
    stdout: Path | None = None
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    timeout_s: float | None = None
    expected_status: int = 0
    inherit_env: bool = True
    ended: Callable[[CompletedCommand], None] | None = None

    @property
    def name(self) -> str:
        """The program's name in messages."""
        return self.program.name

    @property
    def started(self) -> str:
        """The end of the message that a run begins, after its name and tool."""
        if self.stdout is None:
            return "its standard output is discarded"
        return f"its standard output goes to {self.stdout}"

    @property
    def command(self) -> list[str]:
        """The program and its arguments, to be run in any folder."""
        # Links are not resolved: some programs act by the name that they are called by.
        return [str(self.program.absolute()), *self.arguments]


def run_workload(
    run: Run, argv: Sequence[str], diagnostics: Path, report: Callable[[float], None]
) -> CompletedCommand:
    """Runs `argv`, and kills the processes that it leaves at its end.

    Args:
      run: files, folder, environment and time limit.
      argv: tool, program and arguments.
      diagnostics: file for the standard error.
      report: called every ten seconds, with the seconds since the start.

    Raises:
      WorkloadError: a file or the folder cannot be opened.
    """
    with contextlib.ExitStack() as files:
        try:
            stdin = files.enter_context(open(run.stdin or os.devnull, "rb"))
            stdout = files.enter_context(open(run.stdout or os.devnull, "wb"))
            stderr = files.enter_context(diagnostics.open("wb"))
            os.scandir(run.cwd).close()
        except OSError as error:
            raise WorkloadError(f"{error.filename}: cannot be opened: {error.strerror}") from error
        with start_command(
            argv,
            cwd=run.cwd,
            env=run.env,
            inherit_env=run.inherit_env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        ) as command:
            try:
                done = command.wait(run.timeout_s, report)
                if run.ended is not None:
                    run.ended(done)
                return done
            finally:
                # Forked processes may still run.
                command.kill()
