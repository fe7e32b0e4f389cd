# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs external commands with limits; an error says what went wrong and how to run it again."""

import contextlib
import math
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from compiler_opt_perf.run.errors import UserError

_STDERR_LINES_SHOWN = 12
_SECONDS_BETWEEN_REPORTS = 10.0

# Messages of programs, of the C library's loader and of Python without memory, in small letters.
_NO_MEMORY = re.compile(
    "out of memory|cannot allocate memory|bad_alloc|memory exhausted|memoryerror|"
    "failed to map segment|allocation failed"
)
_MORE_MEMORY = "it needs more memory than its limit"


@dataclass(frozen=True)
class CompletedCommand:
    """A command that has ended.

    Attributes:
      argv: the command as given.
      pid: its process id.
      status: exit status; negative is a signal's number.
      timed_out: whether it was killed at its time limit.
      stdout: its standard output, where that was captured.
      stderr: its standard error, where that was captured.
      seconds: wall time.
      processor_seconds: user and system time of it and of the processes that it waited for. The
        kernel measures their sum, and splits it by sampling.
      peak_mib: largest resident memory of any of these, in MiB, or of this process before it
        started them: the kernel keeps the mark of who starts a program (see `run.memory`).
    """

    argv: tuple[str, ...]
    pid: int
    status: int
    timed_out: bool
    stdout: str
    stderr: str
    seconds: float
    processor_seconds: float
    peak_mib: float


class CommandError(UserError):
    """A command that could not be started, failed, crashed or hung.

    Attributes:
      kind: "missing", "failed", "crashed" or "timeout".
      reproduce: a shell line that runs the same command again.
      stderr: its standard error, in full.
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
        """Whether the limit of its memory seems to be the cause."""
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


class _Process(subprocess.Popen[str]):
    """A process that keeps the resource usage which Python's own discards."""

    usage: resource.struct_rusage | None = None

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        try:
            pid, status, usage = os.wait4(self.pid, wait_flags)
        except ChildProcessError:
            # SIGCHLD is ignored: nobody knows the status.
            return self.pid, 0
        if pid:
            self.usage = usage
        return pid, status


class RunningCommand:
    """A started command; see `start_command`.

    Attributes:
      process: the running process.
    """

    def __init__(
        self,
        process: _Process,
        start: float,
        reproduce: str,
        argv: Sequence[str],
        memory_mib: int | None,
    ):
        self.process = process
        self._memory_mib = memory_mib
        self._argv = tuple(argv)
        self._reproduce = reproduce
        self._start = start

    def wait(
        self, timeout_s: float | None = None, report: Callable[[float], None] | None = None
    ) -> CompletedCommand:
        """Waits for the end, however the command ends.

        Args:
          timeout_s: wall-clock limit in seconds from now on; None for no limit. Over it, the
            command is killed with all that it started.
          report: called every ten seconds, with the seconds since the start.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        timed_out = False
        while True:
            left = math.inf if timed_out else deadline - time.monotonic()
            pause = min(left, math.inf if report is None else _SECONDS_BETWEEN_REPORTS)
            try:
                output = self.process.communicate(timeout=None if math.isinf(pause) else pause)
                break
            except subprocess.TimeoutExpired:
                if pause == left:
                    timed_out = True
                    self.kill()
                elif report is not None:
                    report(time.monotonic() - self._start)
        usage = self.process.usage
        return CompletedCommand(
            argv=self._argv,
            pid=self.process.pid,
            status=self.process.returncode,
            timed_out=timed_out,
            # None without pipes.
            stdout=output[0] or "",
            stderr=output[1] or "",
            seconds=time.monotonic() - self._start,
            processor_seconds=usage.ru_utime + usage.ru_stime if usage else 0.0,
            peak_mib=usage.ru_maxrss / 1024 if usage else 0.0,
        )

    def finish(self, timeout_s: float | None = None) -> CompletedCommand:
        """Waits for the end, as `wait`.

        Raises:
          CommandError: non-zero exit, ended by a signal, or over the time limit.
        """
        done = self.wait(timeout_s)
        name = Path(self._argv[0]).name
        if done.timed_out:
            reason = f"{name}: killed after its limit of {timeout_s:g} s"
            raise CommandError("timeout", reason, self._reproduce, done.stderr)
        if done.status == 0:
            return done
        if done.status < 0:
            kind = "crashed"
            reason = f"{name}: ended by {signal_name(-done.status)} after {done.seconds:.1f} s"
        else:
            kind, reason = "failed", f"{name}: exit status {done.status}"
        reason += self._for_lack_of_memory(done.stderr, done.status)
        said = done.stderr or done.stdout if kind == "failed" else done.stderr
        raise CommandError(kind, reason, self._reproduce, said, done.status)

    def _for_lack_of_memory(self, stderr: str, status: int) -> str:
        """The end of a reason, where the limit of memory is the cause."""
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
    inherit_env: bool = True,
    memory_mib: int | None = None,
    limits: Sequence[str] = (),
    stdin: IO[Any] | None = None,
    stdout: IO[Any] | int = subprocess.PIPE,
    stderr: IO[Any] | int | None = subprocess.PIPE,
    errors: str = "replace",
) -> Iterator[RunningCommand]:
    """Starts `argv`; if the block ends with an error, kills what still runs of it.

    The command gets a process group of its own. The kernel kills it when the thread that started it
    ends, so that a killed worker leaves no compiler behind.

    Args: as `run_command`, and
      inherit_env: whether the command gets this process's environment, too.
      limits: further limits, as options of prlimit.
      stdout: where its standard output goes; captured by default.
      stderr: where its standard error goes; captured by default.
      errors: what becomes of output that is not UTF-8, as of `bytes.decode`.

    Raises:
      CommandError: there is no such program or folder, or the words are too many.
    """
    words = [str(word) for word in argv]
    line = shlex.join(words)
    reproduce = f"cd {shlex.quote(str(cwd))} && {line}" if cwd else line
    if shutil.which(words[0]) is None:
        raise CommandError("missing", f"{words[0]}: no such program", reproduce)
    if memory_mib is not None:
        # A smaller limit of this process holds; it cannot be raised.
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = memory_mib * 1024 * 1024
        limits = [f"--as={limit if most == resource.RLIM_INFINITY else min(limit, most)}", *limits]
    wrapper = ["setpriv", "--pdeathsig", "KILL", *(["prlimit", *limits] if limits else [])]
    added = dict(env or {})
    # The process may run before this one goes on.
    start = time.monotonic()
    try:
        process = _Process(
            [*wrapper, *words],
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=os.environ | added if inherit_env else added,
            start_new_session=True,
            encoding="utf-8",
            errors=errors,
        )
    except OSError as error:
        # No such folder, or too many words.
        reason = f"{words[0]}: cannot be started in {cwd or '.'}: {error.strerror}"
        raise CommandError("missing", reason, reproduce) from error
    command = RunningCommand(process, start, reproduce, words, memory_mib)
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
      show_output: shows its output on this process's standard error as it comes, instead of
        returning it.

    Raises:
      CommandError: not found, non-zero exit, ended by a signal, or over the time limit.
    """
    with start_command(
        argv,
        cwd=cwd,
        env=env,
        memory_mib=memory_mib,
        stdin=stdin,
        stdout=sys.stderr if show_output else subprocess.PIPE,
        stderr=None if show_output else subprocess.PIPE,
    ) as command:
        return command.finish(timeout_s)
