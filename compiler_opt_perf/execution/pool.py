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
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compiler_opt_perf.execution.content import Store
from compiler_opt_perf.execution.executor import (
    Executor,
    Request,
    Worker,
    serve,
)
from compiler_opt_perf.execution.scratch import scratch_folder

# An idle worker ends at once when it is told to.
_SECONDS_TO_END = 5.0


class _Process(Worker):
    """A worker with the pipe to it."""

    def __init__(self, scratch: str, preload: str | None = None):
        super().__init__()
        context: SpawnContext | ForkServerContext = multiprocessing.get_context("spawn")
        if preload is not None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([preload])
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, scratch), daemon=True)
        # Ctrl-C goes to all processes of a terminal; what becomes of workers is their owner's to
        # say. The mask is inherited from the first instruction on, as a handler would not be; also
        # through the process that workers are forked from, which the first of them starts.
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

    def send(self, request: Request) -> None:
        self._connection.send_bytes(pickle.dumps(request))

    def receive(self) -> bytes:
        return self._connection.recv_bytes()

    def end(self, *, now: bool) -> str:
        self._connection.close()
        if not now:
            self._process.join(_SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        return f"exit code {self._process.exitcode}"


class Pool(Executor):
    """Worker processes that live as long as the `with` block.

    Workers are spawned, not forked, so that they share no locks with the parent's TensorFlow
    threads and import only what the mapped function's module imports. They are started when there
    is work for them, and end when their parent does.

    Attributes:
      workers: how many, at most.
      preload: a module that takes long to import. The workers of all such pools are forked from one
        process, which imported it and did nothing else; it is the same module in all of them.
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
        return _Process(os.fspath(self._scratch), self.preload)

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
