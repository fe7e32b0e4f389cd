# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Workers that are processes of this machine, forked by Python's fork server.

Each worker has a pipe of its own, and only the thread that calls `Pool.map` uses it. So a dying
worker leaves no lock or queue in a bad state. `concurrent.futures` instead fails all tasks when one
worker dies.
"""

import atexit
import collections
import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import Any, Self

from absl import logging

from compiler_opt_perf.run.content import Marked, unpack
from compiler_opt_perf.run.executor import (
    ATTEMPTS,
    Executor,
    Outcome,
    Task,
    WorkerError,
    called,
    packed,
)
from compiler_opt_perf.run.scratch import scratch_folder

# An idle worker ends at once when its pipe is closed.
_SECONDS_TO_END = 5.0
_CONTEXT = multiprocessing.get_context("forkserver")
# The modules that nearly all jobs import and that take long: each worker has them from its start.
_CONTEXT.set_forkserver_preload(
    [__name__, "elftools.elf.elffile", "msgspec", "numpy", "yaml"],
)
# Pools of several threads take turns with it.
_main_module = threading.Lock()


class _Worker:
    """A worker process and the pipe to it.

    Attributes:
      connection: readable when there is an outcome or the worker is dead.
      task: the task that it runs; None while it is idle.
      deadline: when the task must be done, in seconds of time.monotonic; None for no limit.
    """

    def __init__(self, scratch: str):
        self.task: Task | None = None
        self.deadline: float | None = None
        self.connection, theirs = multiprocessing.Pipe()
        # Reading from a dead worker ends only when its side is closed here.
        with theirs:
            arguments = theirs, scratch, dict(os.environ)
            self._process = _started(_serve, arguments)

    def give(self, task: Task, timeout_s: float | None) -> None:
        """Sends a task. The death of the worker shows when its outcome is read."""
        self.task = task
        self.deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with contextlib.suppress(OSError):
            self.connection.send_bytes(task.message)

    def end(self, *, kill: bool) -> str:
        """Ends the worker, killing it if it does not end by itself; says how it ended."""
        self.connection.close()
        if not kill:
            self._process.join(_SECONDS_TO_END)
        self._process.kill()
        self._process.join()
        how = f"exit code {self._process.exitcode}"
        self._process.close()
        return how


class Pool(Executor):
    """Worker processes of this machine, which end with the `with` block or with their owner.

    Workers share no locks with this process, and import only what the mapped function's module
    imports. They are started when there is work for them.

    Attributes:
      workers: the largest number of workers.
      scratch: the folder for temporary files of the workers, inside of the `with` block.
    """

    travels = False

    def __init__(self, workers: int | None = None):
        self.workers = workers or len(os.sched_getaffinity(0))
        self._crew: list[_Worker] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        # Removed with the pool, including the files of killed workers.
        self.scratch = self._stack.enter_context(scratch_folder())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            while self._crew:
                self._crew.pop().end(kill=kind is not None)

    def _run(
        self, tasks: Sequence[Task], timeout_s: float | None
    ) -> Generator[tuple[Task, Outcome[Any]], None, None]:
        waiting = collections.deque(tasks)
        try:
            while waiting or any(worker.task for worker in self._crew):
                self._give(waiting, timeout_s)
                busy = {worker.connection: worker for worker in self._crew if worker.task}
                for connection in wait(list(busy), _seconds_left(busy.values())):
                    worker = busy.pop(connection)  # type: ignore[call-overload]
                    task, worker.task = worker.task, None
                    assert task is not None
                    try:
                        outcome = pickle.loads(worker.connection.recv_bytes())
                    except (EOFError, OSError):
                        how = self._dismiss(worker)
                        if task.attempts < ATTEMPTS:
                            logging.warning(
                                "worker died (%s) on task %d; running the task again",
                                how,
                                task.index,
                            )
                            waiting.appendleft(task)
                            continue
                        died = f"its worker died {ATTEMPTS} times ({how})"
                        outcome = Outcome(None, WorkerError(died))
                    yield task, outcome
                for worker in busy.values():
                    if worker.deadline is not None and worker.deadline <= time.monotonic():
                        assert worker.task is not None
                        self._dismiss(worker)
                        late = WorkerError(f"killed after its limit of {timeout_s} s")
                        yield worker.task, Outcome(None, late)
        finally:
            # After an error, no later call may take their outcomes for its own.
            for worker in [worker for worker in self._crew if worker.task]:
                self._dismiss(worker)

    def _give(self, waiting: "collections.deque[Task]", timeout_s: float | None) -> None:
        """Gives tasks to idle workers, and to new ones as far as allowed."""
        idle = [worker for worker in self._crew if not worker.task]
        while waiting and (idle or len(self._crew) < self.workers):
            task = waiting.popleft()
            task.attempts += 1
            if not idle:
                idle.append(_Worker(os.fspath(self.scratch)))
                self._crew += idle
            idle.pop().give(task, timeout_s)

    def _dismiss(self, worker: _Worker) -> str:
        self._crew.remove(worker)
        return worker.end(kill=True)


def _seconds_left(busy: Iterable[_Worker]) -> float | None:
    """Seconds until the next deadline; None without one."""
    deadlines = [worker.deadline for worker in busy if worker.deadline is not None]
    return max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None


def _started(target: Callable[..., None], arguments: tuple[Any, ...]) -> ForkServerProcess:
    """Starts a process. Raises WorkerError: the fork server dies again and again."""
    _make_server_folder()
    with _no_main_module():
        for _ in range(ATTEMPTS):
            process = _CONTEXT.Process(target=target, args=arguments, daemon=True)
            # The fork server can be killed from outside, too; it is then started again.
            with contextlib.suppress(EOFError, ConnectionError):
                process.start()
                return process
    raise WorkerError("no worker can be started; is there memory for another Python process?")


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Hides the main module: a new process would run its file, and needs nothing of it."""
    with _main_module:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


@functools.cache
def _make_server_folder() -> None:
    """Makes the folder of the fork server's socket.

    Python's own would be in TMPDIR, whose name can be too long for a socket, and would stay when
    this process is killed.
    """
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(scratch_folder("/tmp"))
    multiprocessing.current_process()._config["tempdir"] = os.fspath(folder)  # type: ignore[attr-defined]


# On the worker's side.


def _serve(
    connection: "Connection[Any, Any]", scratch: str, environment: Mapping[str, str]
) -> None:
    """The loop of a worker: one task after the other, until its owner closes the pipe or dies."""
    # Ctrl-C goes to all processes of a terminal, and the owner ends its workers. Programs that the
    # worker starts would inherit SIG_IGN.
    signal.signal(signal.SIGINT, lambda *_: None)
    # The fork server has the environment of its own start.
    os.environ.clear()
    os.environ.update(environment)
    # Programs that a task runs read the variable.
    tempfile.tempdir = os.environ["TMPDIR"] = scratch
    threading.Thread(target=_end_with_owner, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send_bytes(packed(called(_call, connection.recv_bytes())))


def _call(message: bytes) -> Any:
    function, item = unpack(message, Marked.local_path)
    return function(item)


def _end_with_owner() -> None:
    owner = multiprocessing.parent_process()
    assert owner is not None
    owner.join()
    # The kernel then kills what the task runs (see command.start_command).
    os._exit(1)
