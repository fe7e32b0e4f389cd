# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps a function over processes; a killed or hanging worker costs one task, never the run."""

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from absl import logging
from pebble import ProcessExpired, ProcessPool

from compiler_opt_perf.execution.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

# A worker can be killed from outside (out of memory, an operator); the task is then innocent and
# runs again. A task that kills its worker each time is given up.
_ATTEMPTS = 3


class WorkerError(Exception):
    """A task that took longer than its limit, or whose worker died each time it was tried."""


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What became of one item: a value, or the exception in its place."""

    value: Result | None
    error: Exception | None

    def get(self) -> Result:
        """The value. Raises the task's own exception, or WorkerError."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class Pool:
    """Worker processes that live as long as the `with` block.

    Workers are spawned, not forked, so that they share no locks with the parent's TensorFlow
    threads and import only what the mapped function's module imports.
    """

    def __init__(self, workers: int | None = None):
        self.workers = workers or len(os.sched_getaffinity(0))
        # What a killed worker leaves in it goes with the pool.
        self._scratch = tempfile.mkdtemp(prefix="compiler-opt-perf-")
        self._pool = ProcessPool(
            max_workers=self.workers,
            context=multiprocessing.get_context("spawn"),
            initializer=_work_in,
            initargs=[self._scratch],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._pool.close()
            else:
                self._pool.stop()
            self._pool.join()
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
          One outcome an item, in the items' order whatever order they end in.
        """
        work = list(items)
        outcomes: list[Outcome[Result] | None] = [None] * len(work)
        attempts = [0] * len(work)
        pending: dict[Future[Result], int] = {}

        def submit(index: int) -> None:
            attempts[index] += 1
            future = self._pool.schedule(function, args=[work[index]], timeout=timeout_s)
            pending[future] = index

        for index in range(len(work)):
            submit(index)
        with Progress(label, len(work)) as progress:
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    index = pending.pop(future)
                    error = future.exception()
                    if isinstance(error, ProcessExpired) and attempts[index] < _ATTEMPTS:
                        logging.warning(
                            "worker died (exit code %s) on task %d; running the task again",
                            error.exitcode,
                            index,
                        )
                        submit(index)
                        continue
                    outcomes[index] = _outcome(future, error, timeout_s)
                    progress.advance()
        return [outcome for outcome in outcomes if outcome is not None]


def _work_in(scratch: str) -> None:
    """Makes a worker and the programs that it runs put their temporary files into `scratch`."""
    tempfile.tempdir = scratch
    os.environ["TMPDIR"] = scratch


def _outcome(
    future: Future[Result], error: BaseException | None, timeout_s: float | None
) -> Outcome[Result]:
    if error is None:
        return Outcome(future.result(), None)
    if isinstance(error, FutureTimeoutError):
        return Outcome(None, WorkerError(f"killed after its limit of {timeout_s} s"))
    if isinstance(error, ProcessExpired):
        return Outcome(None, WorkerError(f"its worker died {_ATTEMPTS} times ({error})"))
    if isinstance(error, Exception):
        return Outcome(None, error)
    raise error
