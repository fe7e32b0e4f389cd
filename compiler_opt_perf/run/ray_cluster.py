# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Workers that are processes of a Ray cluster: of this machine alone, or of several.

Ray is imported by `RayExecutor` only. Of Ray this uses actors: it places them on machines that have
a processor free and says when one is dead; what they work on is `execution.executor`'s to say.
"""

import contextlib
import logging as standard_logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from absl import logging

from compiler_opt_perf.run.content import Store
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.executor import Executor, Request, Worker, WorkerError, serve
from compiler_opt_perf.run.scratch import scratch_folder

#: The address of a cluster of this machine alone, which lives as long as the run.
LOCAL = "local"

#: That of the cluster that this machine belongs to.
AUTO = "auto"

# For messages under way; contents are kept in the workers' folders.
_OBJECT_STORE_BYTES = 128 << 20
# How often the cluster is asked for its processors: machines come and go.
_SECONDS_BETWEEN_COUNTS = 5.0
_SECONDS_TO_END = 5.0
_SECONDS_TO_CONNECT = 10.0
# Names of sockets may have 107 bytes, and Ray adds 60 to this folder's.
_LONGEST_FOLDER = 45
_ENVIRONMENT = {
    # It tells nobody of this run.
    "RAY_USAGE_STATS_ENABLED": "0",
    # What it says of dead workers would be among our results; we say that ourselves.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}


class ClusterError(UserError):
    """A cluster that cannot be started or reached."""


class _ActorBody:
    """What runs on the cluster, in a process of its own."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        scratch = self._stack.enter_context(scratch_folder())
        # Also for the temporary files of programs that it runs.
        tempfile.tempdir = os.environ["TMPDIR"] = os.fspath(scratch)
        self._store = Store(scratch / "content")

    def hello(self) -> bytes:
        """The name of the machine; that of the node besides, for a machine may be several."""
        import ray

        node: str = ray.get_runtime_context().get_node_id()
        return f"{socket.gethostname()} ({node[:8]})".encode()

    def do(self, request: Request) -> bytes:
        """Does a task."""
        return serve(request, self._store)

    def close(self) -> None:
        """Removes its files."""
        self._stack.close()


class _Actor(Worker):
    """An actor, and what it was asked for last."""

    def __init__(self, kind: Any):
        super().__init__()
        self._reason = ""
        self._actor = kind.remote()
        self.answer = self._actor.hello.remote()

    def send(self, request: Request) -> None:
        self.answer = self._actor.do.remote(request)

    def receive(self) -> bytes:
        import ray

        answer, self.answer = self.answer, None
        try:
            message: bytes = ray.get(answer)
        except ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self._reason = f": {lines[-1]:.200}" if lines else ""
            raise EOFError from error
        return message

    def end(self, *, now: bool) -> str:
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            if not now and self.ready:
                ray.get(self._actor.close.remote(), timeout=_SECONDS_TO_END)
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self._actor)
        return (f"on node {self.node}" if self.node else "before it was ready") + self._reason


class RayExecutor(Executor):
    """Workers on a Ray cluster, one a processor.

    Every machine needs the package and its toolchain at the same paths (docs/train.md).
    """

    def __init__(self, address: str = LOCAL, workers: int | None = None):
        """Begins without a cluster.

        Args:
          address: LOCAL, AUTO, or HOST:PORT of the first machine of the cluster that this machine
            belongs to.
          workers: at most as many; None for one a processor of the cluster.
        """
        super().__init__()
        self._address = address
        self._most = workers
        self._stack = contextlib.ExitStack()
        self._counted = (0.0, 0)

    @property
    def workers(self) -> int:  # type: ignore[override]
        """As many as the cluster has processors now."""
        import ray

        when, count = self._counted
        if time.monotonic() - when > _SECONDS_BETWEEN_COUNTS:
            count = int(ray.cluster_resources().get("CPU", 0))
            self._counted = time.monotonic(), count
        return count if self._most is None else min(count, self._most)

    def __enter__(self) -> Self:
        """Starts the cluster, or connects to it. Raises ClusterError."""
        if self._address not in (AUTO, LOCAL):
            _require_reachable(self._address)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_environment(self._address == LOCAL))
            self._connect(stack)
            self._stack = stack.pop_all()
        return self

    def _connect(self, stack: contextlib.ExitStack) -> None:
        try:
            import ray
        except ImportError as error:
            raise ClusterError("Ray is not installed; run tools/bootstrap") from error
        standard_logging.getLogger("ray").setLevel(standard_logging.CRITICAL)
        given: dict[str, Any] = {"address": self._address}
        if self._address == LOCAL:
            given |= {
                "num_cpus": self._most or len(os.sched_getaffinity(0)),
                "object_store_memory": _OBJECT_STORE_BYTES,
                "include_dashboard": False,
                "_temp_dir": os.fspath(stack.enter_context(_session_folder())),
            }
        # Ray puts its own in their place.
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
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_ActorBody)
        logging.info("Ray %s: %d processors", version("ray"), self.workers)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            super().__exit__(kind, error, trace)

    def _hire(self) -> Worker:
        return _Actor(self._kind)

    def _wait(self, workers: Sequence[Worker], seconds: float | None) -> Sequence[Worker]:
        import ray

        by_answer = {
            worker.answer: worker
            for worker in workers
            if isinstance(worker, _Actor) and worker.answer is not None
        }
        if not by_answer:
            raise WorkerError(
                f"--address={self._address}: the cluster has no processor; start its machines with "
                "`ray start --num-cpus=NUMBER`"
            )
        ready, _ = ray.wait(list(by_answer), timeout=seconds)
        return [by_answer[answer] for answer in ready]


def _not_there(address: str, reason: str) -> ClusterError:
    return ClusterError(
        f"--address={address}: no Ray cluster can be used there: {reason.rstrip('.')}; start one "
        "with `ray start` on each machine, this one too (docs/train.md), or give "
        f"--address={LOCAL}"
    )


def _require_reachable(address: str) -> None:
    """Ray itself would try for minutes. Raises ClusterError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ClusterError(f"--address={address}: expected {AUTO}, {LOCAL} or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise _not_there(address, error.strerror or str(error)) from error


@contextlib.contextmanager
def _environment(is_local: bool) -> Iterator[None]:
    """Ray's settings, which it takes from the environment; for this run only."""
    settings: Mapping[str, str] = _ENVIRONMENT
    if is_local and "RAY_AUTH_MODE" not in os.environ:
        # A secret of this run, so that none is left in the user's home.
        settings = {
            **settings,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _session_folder() -> Iterator[Path]:
    """A folder for Ray's sockets and logs."""
    with scratch_folder() as folder:
        if len(os.fspath(folder)) > _LONGEST_FOLDER:
            with tempfile.TemporaryDirectory(prefix="compiler-opt-perf-", dir="/tmp") as short:
                yield Path(short)
        else:
            yield folder
        # Its processes end one after the other, and write as they do.
        deadline = time.monotonic() + _SECONDS_TO_END
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
