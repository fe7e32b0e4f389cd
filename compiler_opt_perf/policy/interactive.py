# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A host for the compiler's interactive mode: Python decides, one observation at a time.

The compiler writes the format of its training logs to one named pipe, `CHANNEL.out`: a header of
JSON, then for each decision a line of JSON and the tensors' bytes. From another, `CHANNEL.in`, it
reads each decision, an int64 (llvm/lib/Analysis/InteractiveModelRunner.cpp).
"""

import contextlib
import operator
import os
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.export import Policy
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.policy.tensors import Tensor, record_type
from compiler_opt_perf.run.command import CompletedCommand, start_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.json_text import JsonError, decode

_READ_SIZE = 1 << 16
# Header and JSON lines are shorter; more without a newline is not the protocol.
_LONGEST_LINE = 1 << 20
_ALARM_INTERVAL_S = 0.1

T = TypeVar("T")


class InteractiveError(UserError):
    """The compiler violated the protocol, or a decision is not one of those it offers."""


class _Header(msgspec.Struct, frozen=True):
    """The first line of a module."""

    advice: Tensor
    features: tuple[Tensor, ...]


class _Message(msgspec.Struct, frozen=True):
    """Any other line: the function that decisions are then for, or the number of one."""

    context: str | None = None
    observation: int | None = None


@dataclass(frozen=True)
class Observation:
    """What the compiler tells about one decision.

    Attributes:
      number: counts from 0, over one compilation.
      function: where the decision is taken; empty for the inliner, which does not tell.
      features: by name, in the feature's dtype: [1] for a scalar, [1, columns] for a value a
        candidate. The first axis is that of rows in `Policy.decide`.
    """

    number: int
    function: str
    features: Mapping[str, npt.NDArray[Any]]


#: Returns the decision: for inlining 0 or 1, for eviction a column whose `mask` is 1.
Decide = Callable[[Observation], int]


def policy_decisions(policy: Policy) -> Decide:
    """The decision function of a published policy, evaluated with numpy.

    PMU features that the compiler does not send, for it was given no profile, are what a policy
    that is compiled into it gets then.
    """
    absent = policy.network.problem.unprofiled_inputs(1) if policy.network.with_pmu else {}

    def decide(observation: Observation) -> int:
        return int(policy.decide({**absent, **observation.features})[0])

    return decide


def load_decisions(path: Path) -> Decide:
    """The function `decide` of a user's Python file.

    Raises:
      InteractiveError: there is no such file, or no such function in it.
      Exception: what running the file raises.
    """
    try:
        code = compile(path.read_bytes(), str(path), "exec")
    except OSError as error:
        raise InteractiveError(f"{path}: {error.strerror}") from error
    except SyntaxError as error:
        raise InteractiveError(f"{path}: line {error.lineno}: {error.msg}") from error
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(code, names)
    decide = names.get("decide")
    if not callable(decide):
        raise InteractiveError(f"{path}: defines no function decide(observation)")
    return cast(Decide, decide)


class InteractiveHost:
    """Compiles with a decision function, through two named pipes in a folder of its own.

        with InteractiveHost(problem, decide) as host:
            options = for_clang(problem.interactive_options(host.channel))
            host.run([clang, "-c", "file.c", *options])

    Attributes:
      channel: for `Problem.interactive_options`.
    """

    channel: Path

    def __init__(self, problem: Problem, decide: Decide):
        self._problem = problem
        self._decide = decide

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="interactive-")
        self.channel = Path(self._folder.name) / "channel"
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        timeout_s: float | None = None,
        memory_mib: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CompletedCommand:
        """Runs one compilation and answers it until it ends.

        A compiler that asks nothing, because there is nothing to decide, is no error. When this
        returns or raises, the compiler has ended and the pipes are gone.

        Args:
          argv: the compiler and its arguments, `Problem.interactive_options` among them.
          timeout_s: wall-clock limit of the compilation, the decision function's time included. A
            decision that takes longer is ended by SIGALRM, when Python code of it runs next;
            outside the main thread, which alone gets signals, it is waited for.
          memory_mib: limit of the compiler's address space.
          env: variables added to this process's environment.

        Raises:
          CommandError: the compiler failed, crashed, or was killed at the time limit.
          InteractiveError: the compiler violates the protocol, or a decision is invalid or takes
            longer than the time that is left.
          Exception: what the decision function raises, with a note that says where.
        """
        with (
            _Stream(self.channel) as stream,
            ThreadPoolExecutor(1) as executor,
            start_command(argv, env=env, memory_mib=memory_mib) as compiler,
        ):
            stream.watch(compiler.process.pid)
            # Reads what the compiler prints; otherwise, once that pipe is full, each waits for the
            # other.
            completed = executor.submit(compiler.finish, timeout_s)
            try:
                with _deadline(timeout_s) as self._deadline:
                    self._serve(stream)
            except _TruncatedError as error:
                # If the compiler has failed, its own message says more.
                completed.result()
                raise InteractiveError(f"{error}; the compiler ended there") from None
            return completed.result()

    def _serve(self, stream: "_Stream") -> None:
        """Answers until the compiler has ended."""
        record: np.dtype[np.void] | None = None
        function = ""
        number = 0
        while True:
            line = stream.line()
            if line is None:
                # It may open the pipes again, for another module.
                if not stream.reopen():
                    return
                record = None
                continue
            if record is None:
                record = self._header(line)
                continue
            message = _decode(line, _Message)
            if message.context is not None:
                function = message.context
            elif message.observation is not None:
                content = stream.take(record.itemsize + 1)
                if content[-1:] != b"\n":
                    raise InteractiveError(f"observation {number} does not end in a newline")
                tensors = np.frombuffer(content, record, count=1)[0]
                features = {name: tensors[name] for name in record.names or ()}
                stream.answer(self._decision(Observation(number, function, features)))
                number += 1
            else:
                raise InteractiveError(f"expected an observation or a context, got {line[:80]!r}")

    def _header(self, line: bytes) -> np.dtype[np.void]:
        header = _decode(line, _Header)
        try:
            advice = record_type([header.advice])
            features = record_type(header.features)
        except ValueError as error:
            raise InteractiveError(f"malformed header from the compiler: {error}") from error
        if advice != np.dtype([(self._problem.decision, "<i8", (1,))]):
            raise InteractiveError(
                f"the compiler asks for {advice}, not for {self._problem.decision}: are the "
                f"options those of {self._problem.name}?"
            )
        return features

    def _decision(self, observation: Observation) -> int:
        where = f"observation {observation.number}"
        if observation.function:
            where += f", function {observation.function}"
        try:
            with self._deadline.during_decision():
                decision = operator.index(self._decide(observation))
        except _OverdueError:
            raise InteractiveError(
                f"{where}: the decision function did not answer within the limit of "
                f"{self._deadline.timeout_s:g} s for the whole compilation"
            ) from None
        except Exception as error:
            error.add_note(f"(the decision function was asked about {where})")
            raise
        if not 0 <= decision < self._problem.decisions:
            raise InteractiveError(
                f"{where}: decision {decision} is not in 0..{self._problem.decisions - 1}"
            )
        if self._problem.mask is not None:
            mask = observation.features[self._problem.mask].reshape(-1)
            if not mask[decision]:
                raise InteractiveError(
                    f"{where}: column {decision} is masked out; admissible are "
                    f"{np.flatnonzero(mask).tolist()}"
                )
        return decision


class _OverdueError(BaseException):
    """Raised in a decision function at the time limit; a BaseException, as it may catch others."""


class _Deadline:
    """Whether a decision is being made, which SIGALRM may end."""

    def __init__(self, timeout_s: float | None):
        self.timeout_s = timeout_s
        self._deciding = False

    @contextlib.contextmanager
    def during_decision(self) -> Iterator[None]:
        self._deciding = True
        try:
            yield
        finally:
            self._deciding = False

    def handle(self, signal_number: int, frame: FrameType | None) -> None:
        # Otherwise the compiler is at work, which RunningCommand.finish ends.
        if self._deciding:
            self._deciding = False
            raise _OverdueError


@contextlib.contextmanager
def _deadline(timeout_s: float | None) -> Iterator[_Deadline]:
    """Ends decisions `timeout_s` from now on; what else uses SIGALRM has it again afterwards."""
    deadline = _Deadline(timeout_s)
    if timeout_s is None or threading.current_thread() is not threading.main_thread():
        yield deadline
        return
    start = time.monotonic()
    handler = signal.signal(signal.SIGALRM, deadline.handle)
    # Again and again: the limit may pass between two decisions, and the next one still begin.
    left, interval = signal.setitimer(signal.ITIMER_REAL, timeout_s, _ALARM_INTERVAL_S)
    try:
        yield deadline
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            left = max(left - (time.monotonic() - start), _ALARM_INTERVAL_S)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


class _TruncatedError(Exception):
    """The pipe was closed within a line or a record."""


class _Stream:
    """The pipes' ends on our side, in a `with` statement that makes the pipes and removes them."""

    def __init__(self, channel: Path):
        self._to_compiler = f"{channel}.in"
        self._from_compiler = f"{channel}.out"
        self._buffer = bytearray()
        self._files = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for path in (self._to_compiler, self._from_compiler):
            os.mkfifo(path, 0o600)
            self._files.callback(os.unlink, path)
        # Opened for reading as well: then opening does not wait, here or in the compiler.
        self._advice = os.open(self._to_compiler, os.O_RDWR)
        self._files.callback(os.close, self._advice)
        self._features = self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        os.close(self._features)

    def watch(self, pid: int) -> None:
        """Stops waiting for the compiler when the process `pid`, a child not yet reaped, ends."""
        self._ended = os.pidfd_open(pid)
        self._files.callback(os.close, self._ended)

    def line(self) -> bytes | None:
        """The next line without its newline; None when the compiler has closed the pipe."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _LONGEST_LINE:
                raise InteractiveError(f"expected a line of JSON, got {self._buffer[:80]!r}")
            if not self._read():
                if self._buffer:
                    raise _TruncatedError(f"truncated line of JSON {bytes(self._buffer[:80])!r}")
                return None
        return self._cut(end + 1)[:-1]

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        while len(self._buffer) < size:
            if not self._read():
                raise _TruncatedError(
                    f"truncated observation of {len(self._buffer)} instead of {size} bytes"
                )
        return self._cut(size)

    def answer(self, decision: int) -> None:
        """Sends a decision; a pipe always has room for one."""
        os.write(self._advice, decision.to_bytes(8, "little", signed=True))

    def reopen(self) -> bool:
        """Opens the pipe for another writer; False when the compiler has ended."""
        # Opens the new end before closing the old one: a writer without a reader gets SIGPIPE.
        new, old = self._open(), self._features
        self._features = new
        os.close(old)
        poll = select.poll()
        poll.register(new, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        return any(file == new for file, _ in poll.poll())

    def _open(self) -> int:
        return os.open(self._from_compiler, os.O_RDONLY | os.O_NONBLOCK)

    def _read(self) -> bool:
        """Waits for more; False when the pipe is closed, or the compiler ended without opening."""
        poll = select.poll()
        poll.register(self._features, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        if not any(file == self._features for file, _ in poll.poll()):
            return False
        chunk = os.read(self._features, _READ_SIZE)
        self._buffer += chunk
        return bool(chunk)

    def _cut(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def _decode(line: bytes, kind: type[T]) -> T:
    try:
        return decode(line, kind, "a line of JSON from the compiler")
    except JsonError as error:
        raise InteractiveError(f"{error} ({line[:80]!r})") from error
