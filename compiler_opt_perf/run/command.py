# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs external commands with limits, and reports precisely what went wrong."""

import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from compiler_opt_perf.run.errors import UserError

_STDERR_LINES_SHOWN = 12

# What programs, the C library's loader and Python say that got no more memory; in small letters.
_NO_MEMORY = re.compile(
    "out of memory|cannot allocate memory|bad_alloc|memory exhausted|memoryerror|"
    "failed to map segment|allocation failed"
)
_MORE_MEMORY = "it needs more memory than its limit"


@dataclass(frozen=True)
class CompletedCommand:
    """A command that ran to its end with exit status 0.

    Attributes:
      argv: the command as given.
      stdout: what it printed.
      stderr: what it printed as diagnostics.
      seconds: wall time.
    """

    argv: tuple[str, ...]
    stdout: str
    stderr: str
    seconds: float


class CommandError(UserError):
    """A command that could not be started, failed, crashed or hung.

    Attributes:
      kind: "missing", "failed", "crashed" or "timeout".
      reproduce: a shell line that runs the same command again.
      stderr: what it printed as diagnostics, in full.
      returncode: exit status; negative is a signal's number; None when it never ran or was killed.
    """

    def __init__(
        self,
        kind: str,
        reason: str,
        reproduce: str,
        stderr: str = "",
        returncode: int | None = None,
    ):
        self.kind = kind
        self.reason = reason
        self.reproduce = reproduce
        self.stderr = stderr
        self.returncode = returncode
        super().__init__(kind, reason, reproduce, stderr, returncode)

    @property
    def is_out_of_memory(self) -> bool:
        """Whether it seems to have failed for the limit of its memory."""
        return _MORE_MEMORY in self.reason

    def __str__(self) -> str:
        lines = self.stderr.strip().splitlines()
        shown = "\n  ".join(lines[-_STDERR_LINES_SHOWN:])
        return (
            self.reason + (f":\n  {shown}" if shown else "") + f"\n  to reproduce: {self.reproduce}"
        )


def signal_name(number: int) -> str:
    """The signal's name; real-time signals have only numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _reproduce(argv: Sequence[str], cwd: Path | None) -> str:
    line = shlex.join(argv)
    return f"cd {shlex.quote(str(cwd))} && {line}" if cwd else line


class RunningCommand:
    """A started command; see `start_command`.

    Attributes:
      process: the running process.
    """

    def __init__(
        self,
        process: "subprocess.Popen[str]",
        reproduce: str,
        argv: Sequence[str],
        memory_mib: int | None,
    ):
        self.process = process
        self._memory_mib = memory_mib
        self._argv = tuple(argv)
        self._reproduce = reproduce
        self._start = time.monotonic()

    def finish(self, timeout_s: float | None = None) -> CompletedCommand:
        """Waits for the end, reading what the command prints.

        Args:
          timeout_s: wall-clock limit in seconds from now on; None for no limit.

        Raises:
          CommandError: non-zero exit, ended by a signal, or over the time limit.
        """
        name = Path(self._argv[0]).name
        try:
            stdout, stderr = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as expired:
            self.kill()
            _, stderr = self.process.communicate()
            reason = f"{name}: killed after its limit of {timeout_s:g} s"
            raise CommandError("timeout", reason, self._reproduce, stderr or "") from expired
        seconds = time.monotonic() - self._start
        # Without pipes there is nothing to return.
        stdout, stderr = stdout or "", stderr or ""
        status = self.process.returncode
        if status < 0:
            reason = f"{name}: ended by {signal_name(-status)} after {seconds:.1f} s"
            reason += self._for_lack_of_memory(stderr, status)
            raise CommandError("crashed", reason, self._reproduce, stderr, status)
        if status > 0:
            reason = f"{name}: exit status {status}"
            reason += self._for_lack_of_memory(stderr, status)
            raise CommandError("failed", reason, self._reproduce, stderr or stdout, status)
        return CompletedCommand(self._argv, stdout, stderr, seconds)

    def _for_lack_of_memory(self, stderr: str, status: int) -> str:
        """That the limit of memory is the cause, where it is: to be added to a reason."""
        if self._memory_mib is None:
            return ""
        # The kernel kills a program without a word that is itself too large for its limit.
        silent = status in (-signal.SIGSEGV, -signal.SIGKILL) and not stderr.strip()
        if not silent and not _NO_MEMORY.search(stderr.lower()):
            return ""
        return f"; {_MORE_MEMORY} of {self._memory_mib} MiB (memory_mib)"

    def kill(self) -> None:
        """Kills the command and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@contextlib.contextmanager
def start_command(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    memory_mib: int | None = None,
    stdin: IO[bytes] | None = None,
    show_output: bool = False,
) -> Iterator[RunningCommand]:
    """Starts `argv`; if the block ends with an error, kills what still runs of it.

    The command gets a process group of its own; it is also killed by the kernel when the thread
    that started it ends, so that a killed worker leaves no compiler behind.

    Args: as `run_command`.

    Raises:
      CommandError: there is no such program or folder, or the words are too many.
    """
    words = [str(word) for word in argv]
    reproduce = _reproduce(words, cwd)
    if shutil.which(words[0]) is None:
        raise CommandError("missing", f"{words[0]}: no such program", reproduce)
    wrapper = ["setpriv", "--pdeathsig", "KILL"]
    if memory_mib is not None:
        # Where this process has a smaller limit, that holds; it cannot be raised.
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = memory_mib * 1024 * 1024
        wrapper += [
            "prlimit",
            f"--as={limit if most == resource.RLIM_INFINITY else min(limit, most)}",
        ]
    try:
        process = subprocess.Popen(
            [*wrapper, *words],
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            stdout=sys.stderr if show_output else subprocess.PIPE,
            stderr=None if show_output else subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **env} if env else None,
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        # No such folder, or too many words.
        reason = f"{words[0]}: cannot be started in {cwd or '.'}: {error.strerror}"
        raise CommandError("missing", reason, reproduce) from error
    command = RunningCommand(process, reproduce, words, memory_mib)
    try:
        yield command
    except BaseException:
        command.kill()
        process.wait()
        raise


def run_command(
    argv: Sequence[str | Path],
    *,
    timeout_s: float | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    memory_mib: int | None = None,
    stdin: IO[bytes] | None = None,
    show_output: bool = False,
) -> CompletedCommand:
    """Runs `argv` and waits for it.

    At the time limit, and when this process is interrupted, the command is killed with all that it
    started.

    Args:
      argv: program and arguments; the program is looked up on PATH.
      timeout_s: wall-clock limit in seconds; None for no limit.
      cwd: working directory.
      env: variables added to this process's environment.
      memory_mib: limit of the address space in MiB.
      stdin: an open file; nothing (/dev/null) when absent.
      show_output: lets what it prints appear on this process's standard error as it comes, instead
        of returning it.

    Raises:
      CommandError: not found, non-zero exit, ended by a signal, or over the time limit.
    """
    with start_command(
        argv, cwd=cwd, env=env, memory_mib=memory_mib, stdin=stdin, show_output=show_output
    ) as command:
        return command.finish(timeout_s)
