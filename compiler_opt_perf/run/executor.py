# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps a function over workers; a killed or hanging worker costs one task, never the run.

`run.pool` has workers on this machine, `run.ray_cluster` has workers on a Ray cluster. Results do
not depend on the kind of worker.
"""

import abc
import contextlib
import pickle
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from compiler_opt_perf.run.content import Marked, pack
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

#: A worker can be killed from outside, for lack of memory for example. So often a task is tried.
ATTEMPTS = 3


class WorkerError(UserError):
    """A task took longer than its limit, or its worker died each time it was tried."""


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


@dataclass(eq=False)
class Task:
    """One item, ready to be sent.

    Attributes:
      index: the item's place among all items.
      message: the pickled function and item.
      contents: the files that travel.
      size: their size in bytes.
      attempts: how often a worker was given the task.
    """

    index: int
    message: bytes
    contents: Sequence[Marked]
    size: int
    attempts: int = 0


class Executor(abc.ABC):
    """Runs tasks in workers, which live as long as the `with` block.

    Attributes:
      workers: the largest number of workers; it may change.
      travels: whether tasks may run on another machine.
    """

    workers: int
    travels: ClassVar[bool]

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @abc.abstractmethod
    def _run(
        self, tasks: Sequence[Task], timeout_s: float | None
    ) -> Generator[tuple[Task, Outcome[Any]], None, None]:
        """Yields each task with its outcome, in any order. Closed early, it kills its workers."""

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        timeout_s: float | None = None,
        label: str | None = None,
        keep: Callable[[Item, Result], None] | None = None,
    ) -> list[Outcome[Result]]:
        """Calls a function on each item.

        Args:
          function: a function of an imported module, or a partial of one.
          timeout_s: limit of one call in seconds; a worker over it is killed and replaced.
          label: shows progress under this name when given.
          keep: called in this process with each item and its value once that is there, in any
            order; it writes values to files, so that an interruption loses little.

        Returns:
          One outcome for each item, in the order of the items. If a marked file of an item cannot
          be read (`run.content`), the item's outcome is the OSError.

        Raises:
          WorkerError: there is no worker.
        """
        given = list(items)
        outcomes: list[Any] = [None] * len(given)
        tasks = []
        for index, item in enumerate(given):
            try:
                message, contents = pack((function, item), travels=self.travels)
                size = sum(one.size for one in contents)
                tasks.append(Task(index, message, contents, size))
            except OSError as error:
                outcomes[index] = Outcome(None, error)
        # Large files compile longest: begun last, one of them would run alone at the end.
        tasks.sort(key=lambda task: -task.size)
        with (
            Progress(label, len(given)) as progress,
            contextlib.closing(self._run(tasks, timeout_s)) as done,
        ):
            progress.advance(len(given) - len(tasks))
            for task, outcome in done:
                outcomes[task.index] = outcome
                if keep is not None and outcome.error is None:
                    keep(given[task.index], outcome.get())
                progress.advance()
        return outcomes


def called(function: Callable[..., Any], *arguments: Any) -> Outcome[Any]:
    """The outcome of a call."""
    try:
        return Outcome(function(*arguments), None)
    except Exception as error:
        return Outcome(None, error)


def packed(outcome: Outcome[Any]) -> bytes:
    """An outcome as a message; WorkerError takes the place of what cannot be pickled."""
    try:
        message = pickle.dumps(outcome)
        if outcome.error is not None:
            # Exceptions may need other arguments than the ones that they keep.
            pickle.loads(message)
        return message
    except Exception as error:
        content = outcome.error if outcome.error is not None else outcome.value
        problem = f"{content!r:.200} cannot be sent to another process: {error}"
        return pickle.dumps(Outcome(None, WorkerError(problem)))
