# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Workers that are processes of this machine.

Each worker has a pipe of its own, and the thread that calls `Pool.map` is the only one that uses
it: there is no lock or queue that a dying worker could leave in a bad state, whether it is
starting, idle or at work.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compiler_opt_perf.run.content import Store
from compiler_opt_perf.run.executor import (
    Executor,
    Request,
    StillbornError,
    Worker,
    serve,
)
from compiler_opt_perf.run.scratch import scratch_folder
from compiler_opt_perf.run.template import start_copy

# An idle worker ends at once when it is told to.
_SECONDS_TO_END = 5.0


class _Process(Worker):
    """A worker with the pipe to it.

    Attributes:
      pid: its process id.
    """

    def __init__(self, scratch: str, preload: str | None = None):
        super().__init__()
        self._connection, theirs = multiprocessing.Pipe()
        try:
            self._template, self.pid = start_copy(preload, _serve, theirs, scratch)
        finally:
            # So that reading from a dead worker ends.
            theirs.close()
        # Readable when it has ended; the id is its own until its exit code is asked for.
        self._ended = os.pidfd_open(self.pid)

    def fileno(self) -> int:
        """The pipe's descriptor: readable when there is a message or the worker is dead."""
        return self._connection.fileno()

    def send(self, request: Request) -> None:
        self._connection.send_bytes(pickle.dumps(request))

    def receive(self) -> bytes:
        return self._connection.recv_bytes()

    def end(self, *, now: bool) -> str:
        self._connection.close()
        try:
            if now or not wait([self._ended], _SECONDS_TO_END):
                signal.pidfd_send_signal(self._ended, signal.SIGKILL)
            wait([self._ended])
        except ProcessLookupError:
            # It had ended, and with it its template.
            pass
        finally:
            os.close(self._ended)
        return f"exit code {self._template.exit_code(self.pid)}"


class Pool(Executor):
    """Worker processes that live as long as the `with` block.

    Workers are copies of a process that is spawned, not of this one, so that they share no locks
    with its TensorFlow threads and import only what the mapped function's module imports. They are
    started when there is work for them, and end when their owner does.

    Attributes:
      workers: how many, at most.
      preload: a module that takes long to import, and that workers have from their start.
    """

    def __init__(self, workers: int | None = None, *, preload: str | None = None):
        super().__init__()
        self.workers = workers or len(os.sched_getaffinity(0))
        self.preload = preload
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        # Removed with the pool, including what killed workers left in it.
        self._scratch = self._stack.enter_context(scratch_folder())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            super().__exit__(kind, error, trace)

    def _hire(self) -> Worker:
        try:
            return _Process(os.fspath(self._scratch), self.preload)
        except (EOFError, ConnectionError, ProcessLookupError) as error:
            raise StillbornError(
                "with the process that it is a copy of, for the reason above if one is given"
            ) from error

    def _wait(self, workers: Sequence[Worker], seconds: float | None) -> Sequence[Worker]:
        processes = [worker for worker in workers if isinstance(worker, _Process)]
        ready = wait([worker.fileno() for worker in processes], seconds)
        return [worker for worker in processes if worker.fileno() in ready]


def _serve(connection: "Connection[Any, Any]", scratch: str) -> None:
    """The loop of a worker: one task after the other, until its owner closes the pipe or dies."""
    # Also for the temporary files of programs that it runs.
    tempfile.tempdir = scratch
    os.environ["TMPDIR"] = scratch
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        store = Store(Path(tempfile.mkdtemp(prefix="content-")))
    except FileNotFoundError:
        # It went with the owner, who died as this worker started.
        return
    try:
        connection.send_bytes(socket.gethostname().encode())
        while True:
            connection.send_bytes(serve(pickle.loads(connection.recv_bytes()), store))
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # The kernel then kills what the task runs (see command.start_command).
    os._exit(1)
