# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps a function over workers; a killed or hanging worker costs one task, never the run.

This is all but the workers themselves: those of `execution.pool` are processes of this machine,
those of `execution.ray_cluster` are processes of a Ray cluster. Results depend on neither: a task
carries what it needs (`execution.content`) and knows nothing of the others.

Late tasks are met in two ways. Tasks with the largest files are begun first, so that none of them
begins last. And once nothing waits, a worker that has nothing to do begins the task that has run
longest on another machine once more, and the first result ends the other (backup tasks: Dean and
Ghemawat, "MapReduce: simplified data processing on large clusters", OSDI 2004, section 3.6). Tasks
are deterministic, so that this changes no result.
"""

import abc
import collections
import contextlib
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from absl import logging

from compiler_opt_perf.run.content import Parcel, Store, pack
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

# A worker can be killed from outside (out of memory, an operator); its task then runs again. A task
# whose worker dies each time is given up.
_ATTEMPTS = 3
# After so many workers in a row that died before they were ready, no further one is started.
_FALSE_STARTS = 20
# Contents that a worker keeps.
_KEPT_BYTES = 128 << 20
# A task is late when it has run so many times as long as half of the others did.
_LATE_FACTOR = 2.0
# How often late tasks are looked for.
_LATE_POLL_S = 0.5


class WorkerError(UserError):
    """A task that took longer than its limit, or whose worker died each time it was tried."""


class StillbornError(Exception):
    """A worker died before it could be spoken to; the message says what died."""


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


@dataclass(frozen=True)
class Request:
    """What a worker is sent: a task, the contents that it lacks, those that it shall forget."""

    message: bytes
    contents: Mapping[str, Mapping[str, bytes]]
    forgotten: tuple[str, ...]


@dataclass(eq=False)
class _Task:
    """An item on its way.

    Attributes:
      copies: workers that run it.
      attempts: how often it was begun, but for backups.
      outcome: set when it is done.
    """

    index: int
    parcel: Parcel
    copies: int = 0
    attempts: int = 0
    outcome: Outcome[Any] | None = None


@dataclass(eq=False)
class Worker(abc.ABC):
    """A worker, seen from its owner.

    Attributes:
      node: the machine that it is on; known when it is ready.
      ready: it has started and takes tasks.
      task: what it works on; None while it starts or is idle.
      started: when it was given the task, in seconds of time.monotonic.
      deadline: when the task must be done, in the same; None for no limit.
      kept: bytes of the contents that it has, by digest, the least recently used first.
    """

    node: str = ""
    ready: bool = False
    task: _Task | None = None
    started: float = 0.0
    deadline: float | None = None
    kept: dict[str, int] = field(default_factory=dict)

    @abc.abstractmethod
    def send(self, request: Request) -> None:
        """Gives it a task. Raises OSError when it is dead."""

    @abc.abstractmethod
    def receive(self) -> bytes:
        """Its next message; the first names its machine. Raises EOFError, OSError: it is dead."""

    @abc.abstractmethod
    def end(self, *, now: bool) -> str:
        """Ends it, killing it if `now` or if it does not end by itself; says how it ended."""

    def read_lacking(self, task: _Task) -> dict[str, Mapping[str, bytes]]:
        """The contents of a task that it does not have. Raises OSError: one cannot be read."""
        needed = task.parcel.folders
        return {
            digest: folder.read() for digest, folder in needed.items() if digest not in self.kept
        }

    def give(
        self, task: _Task, contents: Mapping[str, Mapping[str, bytes]], timeout_s: float | None
    ) -> None:
        """Sends it a task with what it lacks for it. Raises OSError when it is dead."""
        needed = task.parcel.folders
        for digest, folder in needed.items():
            self.kept.pop(digest, None)
            self.kept[digest] = folder.size
        forgotten = []
        for digest in list(self.kept):
            if sum(self.kept.values()) <= _KEPT_BYTES or digest in needed:
                break
            forgotten.append(digest)
            del self.kept[digest]
        self.send(Request(task.parcel.message, contents, tuple(forgotten)))
        self.task = task
        self.started = time.monotonic()
        self.deadline = None if timeout_s is None else self.started + timeout_s
        task.copies += 1


class Executor(abc.ABC):
    """Workers that live as long as the `with` block, and are started when there is work for them.

    Attributes:
      workers: how many there are at most; it may change.
    """

    workers: int

    def __init__(self) -> None:
        self._crew: list[Worker] = []
        self._false_starts = 0

    @abc.abstractmethod
    def _hire(self) -> Worker:
        """Starts a worker. Raises StillbornError: it died before it could be spoken to."""

    @abc.abstractmethod
    def _wait(self, workers: Sequence[Worker], seconds: float | None) -> Sequence[Worker]:
        """Those with a message, or dead; waits for the first, or so long."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._crew:
            worker.end(now=kind is not None)
        self._crew.clear()

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        timeout_s: float | None = None,
        label: str | None = None,
        keep: Callable[[Item, Result], None] | None = None,
    ) -> list[Outcome[Result]]:
        """Calls `function` (a module-level one, or a partial of one) on each item.

        Args:
          timeout_s: limit for one call; a worker over it is killed and replaced.
          label: shows progress under this name when given.
          keep: called here with each item and its value as soon as that is there, in no certain
            order: to write it to a file, say, so that an interruption loses little.

        Returns:
          One outcome for each item, in the order of the items. A file whose content an item has
          and that can be read no more when its turn comes costs that item: its outcome is the
          OSError.

        Raises:
          WorkerError: no worker lives long enough to take a task.
          OSError: a file whose content an item has is not there.
        """
        given = list(items)
        tasks = [_Task(i, pack((function, item))) for i, item in enumerate(given)]
        left = len(tasks)
        seconds: list[float] = []
        # Compilations of large files take longest.
        waiting = collections.deque(sorted(tasks, key=lambda task: -task.parcel.size))
        with Progress(label, len(tasks)) as progress:

            def finish(task: _Task, outcome: Outcome[Result]) -> None:
                nonlocal left
                task.outcome = outcome
                left -= 1
                for slower in [one for one in self._crew if one.task is task]:
                    self._dismiss(slower)
                if keep is not None and outcome.error is None:
                    keep(given[task.index], outcome.get())
                progress.advance()

            def bury(worker: Worker) -> None:
                how = self._dismiss(worker)
                task = worker.task
                if task is None:
                    self._note_death_without_task(worker, how)
                elif task.copies:
                    return
                elif task.attempts < _ATTEMPTS:
                    logging.warning(
                        "worker died (%s) on task %d; running the task again", how, task.index
                    )
                    waiting.appendleft(task)
                else:
                    died = f"its worker died {_ATTEMPTS} times ({how})"
                    finish(task, Outcome(None, WorkerError(died)))

            def next_for(
                worker: Worker,
            ) -> tuple[_Task, Mapping[str, Mapping[str, bytes]]] | None:
                """The task that an idle worker begins, with its contents, if there is one."""
                while waiting:
                    try:
                        return waiting[0], worker.read_lacking(waiting[0])
                    except OSError as error:
                        # The file is the cause, not the worker: no other one could read it.
                        finish(waiting.popleft(), Outcome(None, error))
                late = self._late_task(worker, seconds)
                # Without the file, the one that runs it already goes on alone.
                with contextlib.suppress(OSError):
                    return None if late is None else (late, worker.read_lacking(late))
                return None

            try:
                while left:
                    self._fill(left)
                    for worker in [one for one in self._crew if one.ready and one.task is None]:
                        begun = next_for(worker)
                        if begun is None:
                            continue
                        try:
                            worker.give(*begun, timeout_s)
                        except OSError:
                            bury(worker)
                            continue
                        if waiting:
                            waiting.popleft().attempts += 1
                    if not self._crew or not left:
                        # All died while idle, or nothing is to do: nothing would ever be ready.
                        continue
                    for worker in self._wait(self._crew, self._seconds_to_wait()):
                        if worker not in self._crew:
                            # Dismissed a moment ago.
                            continue
                        try:
                            message = worker.receive()
                        except (EOFError, OSError):
                            bury(worker)
                            continue
                        task, worker.task = worker.task, None
                        if task is None:
                            worker.node, worker.ready = message.decode(), True
                            self._false_starts = 0
                            continue
                        task.copies -= 1
                        seconds.append(time.monotonic() - worker.started)
                        finish(task, pickle.loads(message))
                    for worker in self._overdue():
                        assert worker.task is not None
                        self._dismiss(worker)
                        if not worker.task.copies:
                            late = WorkerError(f"killed after its limit of {timeout_s} s")
                            finish(worker.task, Outcome(None, late))
            except BaseException:
                # Otherwise their results would be taken for those of another call.
                for worker in [worker for worker in self._crew if worker.task is not None]:
                    self._dismiss(worker)
                raise
        return [task.outcome for task in tasks if task.outcome is not None]

    def _fill(self, left: int) -> None:
        """Starts as many workers as there is work for."""
        while len(self._crew) < min(self.workers, left):
            try:
                self._crew.append(self._hire())
            except StillbornError as error:
                self._note_false_start(str(error))

    def _late_task(self, idle: Worker, seconds: Sequence[float]) -> _Task | None:
        """What has run longest on another machine, if that is long, and nobody else runs it."""
        late_from = time.monotonic() - _LATE_FACTOR * statistics.median(seconds or [1e9])
        late = [
            worker
            for worker in self._crew
            if worker.task is not None and worker.task.copies == 1
            if worker.node != idle.node and worker.started < late_from
        ]
        return min(late, key=lambda worker: worker.started).task if late else None

    def _seconds_to_wait(self) -> float | None:
        """Until the next deadline, or until late tasks are looked for."""
        now = time.monotonic()
        times = [w.deadline - now for w in self._crew if w.task is not None and w.deadline]
        if len({worker.node for worker in self._crew}) > 1:
            times.append(_LATE_POLL_S)
        return max(min(times), 0.0) if times else None

    def _overdue(self) -> list[Worker]:
        now = time.monotonic()
        return [w for w in self._crew if w.task is not None and w.deadline and w.deadline <= now]

    def _dismiss(self, worker: Worker) -> str:
        self._crew.remove(worker)
        if worker.task is not None:
            worker.task.copies -= 1
        return worker.end(now=True)

    def _note_death_without_task(self, worker: Worker, how: str) -> None:
        if worker.ready:
            logging.warning("an idle worker died (%s); starting another one", how)
            return
        self._note_false_start(how)

    def _note_false_start(self, how: str) -> None:
        logging.warning("a worker died as it started (%s); starting another one", how)
        self._false_starts += 1
        if self._false_starts >= _FALSE_STARTS:
            raise WorkerError(
                f"{_FALSE_STARTS} workers in a row died as they started ({how}); is there memory "
                "for another Python process?"
            )


# On the worker's side.


def serve(request: Request, store: Store) -> bytes:
    """Does a task; returns its outcome, as a message."""
    return _packed(_call(request, store))


def _call(request: Request, store: Store) -> Outcome[Any]:
    try:
        store.drop(request.forgotten)
        for digest, files in request.contents.items():
            store.keep(digest, files)
        function, item = store.unpack(request.message)
        return Outcome(function(item), None)
    except Exception as error:
        return Outcome(None, store.in_terms_of_the_sender(error))


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
