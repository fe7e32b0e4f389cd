# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps a function over processes; a killed or hanging worker costs one task, never the run.

Each worker has a pipe of its own, and the thread that calls `Pool.map` is the only one that uses
it: there is no lock or queue that a dying worker could leave in a bad state, whether it is
starting, idle or at work.
"""

import collections
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from absl import logging

from compiler_opt_perf.execution.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

# A worker can be killed from outside (out of memory, an operator); its task then runs again. A task
# whose worker dies each time is given up.
_ATTEMPTS = 3
# After so many workers in a row that died before they were ready, no further one is started.
_FALSE_STARTS = 20
# An idle worker ends at once when it is told to.
_SECONDS_TO_END = 5.0
_READY = "ready"


class WorkerError(Exception):
    """A task that took longer than its limit, or whose worker died each time it was tried."""


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """The outcome of one item: a value, or an exception."""

    value: Result | None
    error: Exception | None

    def get(self) -> Result:
        """The value. Raises the task's own exception, or WorkerError."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class _Worker:
    """A worker process, seen from its owner.

    Attributes:
      ready: it has started and takes tasks.
      task: index of the item that it works on; None while it starts or is idle.
      deadline: when the task must be done, in seconds of time.monotonic; None for no limit.
    """

    def __init__(self, scratch: str):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, scratch), daemon=True)
        self.ready = False
        self.task: int | None = None
        self.deadline: float | None = None
        # Ctrl-C goes to all processes of a terminal; what becomes of workers is their owner's to
        # say. The mask is inherited from the first instruction on, as a handler would not be.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            # So that reading from a dead worker ends.
            theirs.close()

    def fileno(self) -> int:
        """The pipe's descriptor: readable when there is a message or the worker is dead."""
        return self._connection.fileno()

    def send(self, message: bytes, task: int, timeout_s: float | None) -> None:
        """Gives it a task. Raises OSError when it is dead."""
        self._connection.send_bytes(message)
        self.task = task
        self.deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def receive(self) -> bytes:
        """Its next message. Raises EOFError or OSError when it is dead."""
        return self._connection.recv_bytes()

    def end(self, *, now: bool) -> int | None:
        """Ends it, killing it if `now` or if it does not end by itself; returns the exit code."""
        self._connection.close()
        if not now:
            self._process.join(_SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        return self._process.exitcode


class Pool:
    """Worker processes that live as long as the `with` block.

    Workers are spawned, not forked, so that they share no locks with the parent's TensorFlow
    threads and import only what the mapped function's module imports. They are started when there
    is work for them, and end when their parent does.
    """

    def __init__(self, workers: int | None = None):
        self.workers = workers or len(os.sched_getaffinity(0))
        # Removed with the pool, including what killed workers left in it.
        self._scratch = tempfile.mkdtemp(prefix="compiler-opt-perf-")
        self._crew: list[_Worker] = []
        self._false_starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for worker in self._crew:
                worker.end(now=kind is not None)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        timeout_s: float | None = None,
        label: str | None = None,
    ) -> list[Outcome[Result]]:
        """Calls `function` (a module-level one) on each item.

        Args:
          timeout_s: limit for one call; a worker over it is killed and replaced.
          label: shows progress under this name when given.

        Returns:
          One outcome for each item, in the order of the items.

        Raises:
          WorkerError: no worker lives long enough to take a task.
        """
        work = [pickle.dumps((function, item)) for item in items]
        outcomes: list[Outcome[Result] | None] = [None] * len(work)
        attempts = [0] * len(work)
        waiting = collections.deque(range(len(work)))
        left = len(work)
        with Progress(label, len(work)) as progress:

            def finish(index: int, outcome: Outcome[Result]) -> None:
                nonlocal left
                outcomes[index] = outcome
                left -= 1
                progress.advance()

            def bury(worker: _Worker) -> None:
                code = self._dismiss(worker)
                if (index := worker.task) is None:
                    self._note_death_without_task(worker, code)
                elif attempts[index] < _ATTEMPTS:
                    logging.warning(
                        "worker died (exit code %s) on task %d; running the task again", code, index
                    )
                    waiting.appendleft(index)
                else:
                    died = f"its worker died {_ATTEMPTS} times (exit code {code})"
                    finish(index, Outcome(None, WorkerError(died)))

            try:
                while left:
                    while len(self._crew) < min(self.workers, left):
                        self._crew.append(_Worker(self._scratch))
                    for worker in list(self._crew):
                        if waiting and worker.ready and worker.task is None:
                            try:
                                worker.send(work[waiting[0]], waiting[0], timeout_s)
                            except OSError:
                                bury(worker)
                                continue
                            attempts[waiting.popleft()] += 1
                    for worker in self._ready_to_read():
                        try:
                            message = worker.receive()
                        except (EOFError, OSError):
                            bury(worker)
                            continue
                        index, worker.task = worker.task, None
                        if index is None:
                            worker.ready = True
                            self._false_starts = 0
                        else:
                            finish(index, _unpacked(message))
                    for worker in self._overdue():
                        assert worker.task is not None
                        self._dismiss(worker)
                        late = WorkerError(f"killed after its limit of {timeout_s} s")
                        finish(worker.task, Outcome(None, late))
            except BaseException:
                # Otherwise their results would be taken for those of another call.
                for worker in [worker for worker in self._crew if worker.task is not None]:
                    self._dismiss(worker)
                raise
        return [outcome for outcome in outcomes if outcome is not None]

    def _ready_to_read(self) -> list[_Worker]:
        """Workers with a message, or dead; waits for the first, or until the next deadline."""
        deadlines = [w.deadline for w in self._crew if w.task is not None and w.deadline]
        seconds = max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None
        ready = wait([worker.fileno() for worker in self._crew], seconds)
        return [worker for worker in self._crew if worker.fileno() in ready]

    def _overdue(self) -> list[_Worker]:
        now = time.monotonic()
        return [w for w in self._crew if w.task is not None and w.deadline and w.deadline <= now]

    def _dismiss(self, worker: _Worker) -> int | None:
        self._crew.remove(worker)
        return worker.end(now=True)

    def _note_death_without_task(self, worker: _Worker, code: int | None) -> None:
        if worker.ready:
            logging.warning("an idle worker died (exit code %s); starting another one", code)
            return
        logging.warning("a worker died as it started (exit code %s); starting another one", code)
        self._false_starts += 1
        if self._false_starts >= _FALSE_STARTS:
            raise WorkerError(
                f"{_FALSE_STARTS} workers in a row died as they started (exit code {code}); is "
                "there memory for another Python process?"
            )


def _serve(connection: "Connection[Any, Any]", scratch: str) -> None:
    """The loop of a worker: one task after the other, until its owner closes the pipe or dies."""
    # Also for the temporary files of programs that it runs.
    tempfile.tempdir = scratch
    os.environ["TMPDIR"] = scratch
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        connection.send_bytes(_READY.encode())
        while True:
            connection.send_bytes(_packed(_call(connection.recv_bytes())))
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # The kernel then kills what the task runs (see command.start_command).
    os._exit(1)


def _call(message: bytes) -> Outcome[Any]:
    try:
        function, item = pickle.loads(message)
        return Outcome(function(item), None)
    except Exception as error:
        return Outcome(None, error)


def _packed(outcome: Outcome[Any]) -> bytes:
    try:
        message = pickle.dumps(outcome)
        if outcome.error is not None:
            # Exceptions may need other arguments than those that they keep.
            pickle.loads(message)
        return message
    except Exception as error:
        what = outcome.error if outcome.error is not None else outcome.value
        unsent = WorkerError(f"{what!r:.200} cannot be sent to another process: {error}")
        return pickle.dumps(Outcome(None, unsent))


def _unpacked(message: bytes) -> Outcome[Any]:
    outcome: Outcome[Any] = pickle.loads(message)
    return outcome
