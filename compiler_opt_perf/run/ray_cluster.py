# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Workers that are processes of a Ray cluster: of this machine alone, or of several.

Ray places tasks on machines that have a processor free, and tries a task again whose machine or
worker dies. Each worker of Ray runs its tasks in a `Pool` of one process, which kills hanging
tasks. Ray is imported by `RayExecutor` only.
"""

import atexit
import collections
import contextlib
import functools
import logging as standard_logging
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from absl import logging

from compiler_opt_perf.run.content import Store, renamed
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.executor import (
    ATTEMPTS,
    Executor,
    Outcome,
    Task,
    WorkerError,
    called,
)
from compiler_opt_perf.run.extras import require_extra
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.scratch import scratch_folder

#: The address of a cluster of this machine alone, which lives as long as the run.
LOCAL = "local"

#: The address of the cluster that this machine belongs to.
AUTO = "auto"

# For contents on their way; workers keep them in folders.
_OBJECT_STORE_BYTES = 128 << 20
# How often machines that have joined are given tasks.
_SECONDS_BETWEEN_COUNTS = 5.0
_SECONDS_TO_END = 5.0
_SECONDS_TO_CONNECT = 10.0
_ENVIRONMENT = {
    # Ray reports this run to nobody.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's messages about dead workers would be among our results; outcomes name these, too.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    # By default, Ray repeats a task for ever that it killed for lack of memory.
    "RAY_task_oom_retries": str(ATTEMPTS - 1),
}


class ClusterError(UserError):
    """A cluster cannot be started or reached, or fails."""


def _do(message: bytes, contents: Mapping[str, Any], timeout_s: float | None) -> Outcome[Any]:
    """Does a task on the cluster, in a process of its own with its limit of time.

    Args:
      message: the task.
      contents: references to files by name, for each digest.
    """
    import ray

    pool, store = _workshop()

    def unpacked() -> tuple[Any, dict[str, str]]:
        store.hold({digest: partial(ray.get, one) for digest, one in contents.items()})
        return store.unpack(message)

    arrived = called(unpacked)
    if arrived.error is not None:
        return arrived
    (function, item), senders = arrived.get()
    [outcome] = pool.map(function, [item], timeout_s=timeout_s)
    if outcome.error is None:
        return outcome
    return Outcome(None, renamed(outcome.error, senders))


@functools.cache
def _workshop() -> tuple[Pool, Store]:
    """A process for the tasks of this worker of Ray, and the contents that it keeps."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    pool = stack.enter_context(Pool(1))
    return pool, Store(pool.scratch / "content")


class RayExecutor(Executor):
    """Workers on a Ray cluster, one a processor.

    Every machine needs the package and its toolchain at the same paths: docs/train-on-a-cluster.md.
    """

    travels = True

    def __init__(self, address: str = LOCAL, workers: int | None = None):
        """Begins without a cluster.

        Args:
          address: LOCAL, AUTO, or HOST:PORT of the first machine of the cluster that this machine
            belongs to.
          workers: the largest number of workers; None for one a processor of the cluster.
        """
        self._address = address
        self._most = workers
        self._stack = contextlib.ExitStack()

    @property
    def workers(self) -> int:  # type: ignore[override]
        """The number of processors of the cluster now, up to the limit."""
        import ray

        count = int(ray.cluster_resources().get("CPU", 0))
        return count if self._most is None else min(count, self._most)

    def __enter__(self) -> Self:
        """Starts the cluster, or connects to it. Raises ClusterError or MissingExtraError."""
        if self._address not in (AUTO, LOCAL):
            _require_reachable(self._address)
        with contextlib.ExitStack() as stack:
            _prepare_environment(self._address == LOCAL)
            self._connect(stack)
            self._stack = stack.pop_all()
        return self

    def _connect(self, stack: contextlib.ExitStack) -> None:
        require_extra("ray")
        import ray

        standard_logging.getLogger("ray").setLevel(standard_logging.CRITICAL)
        given: dict[str, Any] = {"address": self._address}
        if self._address == LOCAL:
            given |= {
                "num_cpus": self._most or len(os.sched_getaffinity(0)),
                "object_store_memory": _OBJECT_STORE_BYTES,
                "include_dashboard": False,
                "_temp_dir": os.fspath(stack.enter_context(_session_folder())),
            }
        # Ray replaces these handlers by its own.
        kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            ray.init(**given, configure_logging=False, log_to_driver=False)
        except (ConnectionError, RuntimeError, TimeoutError, ValueError, OSError) as error:
            ray.shutdown()
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise _not_there(self._address, reason) from error
        finally:
            for number, handler in kept.items():
                if handler is not None:
                    signal.signal(number, handler)
        stack.callback(ray.shutdown)
        self._remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_do)
        logging.info("Ray %s: %d processors", version("ray"), self.workers)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _run(
        self, tasks: Sequence[Task], timeout_s: float | None
    ) -> Generator[tuple[Task, Outcome[Any]], None, None]:
        import ray

        waiting = collections.deque(tasks)
        running: dict[Any, Task] = {}
        # Ray keeps contents as long as there is a reference to them: during this call.
        references: dict[str, Any] = {}
        try:
            while waiting or running:
                workers = self.workers
                while waiting and len(running) < workers:
                    task = waiting.popleft()
                    try:
                        for one in task.contents:
                            if one.digest not in references:
                                references[one.digest] = ray.put(one.read())
                    except OSError as error:
                        yield task, Outcome(None, error)
                        continue
                    contents = {one.digest: references[one.digest] for one in task.contents}
                    answer = self._remote.remote(task.message, contents, timeout_s)
                    running[answer] = task
                if not running and waiting:
                    raise WorkerError(
                        f"--address={self._address}: the cluster has no processor; start its "
                        "machines with `ray start --num-cpus=NUMBER`"
                    )
                if not running:
                    continue
                # The limit lets machines that have joined get tasks.
                for answer in ray.wait(list(running), timeout=_SECONDS_BETWEEN_COUNTS)[0]:
                    yield running.pop(answer), self._outcome(answer)
        finally:
            for answer in running:
                ray.cancel(answer, force=True)

    def _outcome(self, answer: Any) -> Outcome[Any]:
        """The outcome of a finished task. Raises ClusterError: the cluster itself has failed."""
        import ray
        from ray import exceptions as errors

        try:
            outcome: Outcome[Any] = ray.get(answer)
        except errors.RayTaskError:
            # A bug of ours: the errors of a task are outcomes.
            raise
        except errors.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = f"{lines[-1] if lines else type(error).__name__:.200}"
            deaths = errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError
            if isinstance(error, deaths):
                died = WorkerError(f"its worker died {ATTEMPTS} times ({reason})")
                return Outcome(None, died)
            raise ClusterError(
                f"--address={self._address}: the cluster failed: {reason}"
            ) from error
        return outcome


def _not_there(address: str, reason: str) -> ClusterError:
    return ClusterError(
        f"--address={address}: no Ray cluster can be used there: {reason.rstrip('.')}; start one "
        "with `ray start` on each machine, this one too (docs/train-on-a-cluster.md), or give "
        f"--address={LOCAL}"
    )


def _require_reachable(address: str) -> None:
    """Raises ClusterError where Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ClusterError(f"--address={address}: expected {AUTO}, {LOCAL} or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise _not_there(address, error.strerror or str(error)) from error


def _prepare_environment(is_local: bool) -> None:
    """Sets the environment variables that are Ray's settings."""
    settings = _ENVIRONMENT
    if is_local and "RAY_AUTH_MODE" not in os.environ:
        # A secret of this run. Ray would leave one in the user's home.
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        settings = settings | secret
    os.environ.update(settings)


@contextlib.contextmanager
def _session_folder() -> Iterator[Path]:
    """A folder for Ray's sockets and logs."""
    # Names of sockets may have 107 bytes, and Ray adds 60 to this folder's.
    with scratch_folder("/tmp") as folder:
        yield folder
        # Ray's processes end one after the other, and write as they do.
        deadline = time.monotonic() + _SECONDS_TO_END
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
