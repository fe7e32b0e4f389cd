# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes that have imported what workers need, and that workers are copies of.

A copy is there at once, where a new process imports for a third of a second. Python's own server
for this (`multiprocessing.forkserver`) listens at an address in a folder, which a killed owner
leaves behind, and there is one in a process, whatever its workers need. A template has a pipe to
its owner and nothing else.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

# What nearly all jobs import, and what takes long.
_COMMON = ("absl.logging", "elftools.elf.elffile", "msgspec", "numpy", "yaml")

Target = Callable[["Connection[Any, Any]", str], None]


class Template:
    """A process that only imports, and forks. It ends with its owner, or when it is dropped.

    Attributes:
      process: the process.
    """

    def __init__(self, *modules: str):
        # Requests of several threads take turns.
        self._lock = threading.Lock()
        self._connection, theirs = multiprocessing.Pipe()
        # Spawned, so that it has no threads or locks of ours.
        self.process = multiprocessing.get_context("spawn").Process(
            target=_fork_when_told, args=(theirs, modules), daemon=True
        )
        # Ctrl-C goes to all processes of a terminal; what becomes of workers is their owner's to
        # say. The mask is inherited from the first instruction on, as a handler would not be.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            # So that reading from a dead template ends.
            theirs.close()

    def fork(self, target: Target, connection: "Connection[Any, Any]", argument: str) -> int:
        """Starts a copy that calls `target(connection, argument)`, and ends; its process id.

        Its environment and working folder are those of this process now. The owner must ask for
        its `exit_code` in the end.

        Raises:
          OSError, EOFError: the template is dead.
        """
        with self._lock:
            self._connection.send((target, argument, dict(os.environ), os.getcwd(), sys.path))
            reduction.send_handle(self._connection, connection.fileno(), None)
            pid: int = self._connection.recv()
        return pid

    def exit_code(self, pid: int) -> int | None:
        """That of a copy, as subprocess gives it, once it has ended; None if nobody knows it."""
        with self._lock, contextlib.suppress(OSError, EOFError):
            self._connection.send(pid)
            code: int | None = self._connection.recv()
            return code
        return None


# By the process that owns it: a forked process has the variables of another one. And by what the
# workers need besides.
_templates: dict[tuple[int, str | None], Template] = {}


def start_copy(
    preload: str | None, target: Target, connection: "Connection[Any, Any]", argument: str
) -> tuple[Template, int]:
    """Starts a copy of the template for `preload`, a module's name, which is started when needed.

    Returns:
      The template and the copy's process id; see `Template.fork`.

    Raises:
      OSError, EOFError: templates die as they start.
    """
    key = os.getpid(), preload
    known = _templates.get(key)
    if known is not None:
        # Killed from outside, as any process can be.
        with contextlib.suppress(OSError, EOFError):
            return known, known.fork(target, connection, argument)
    new = _templates[key] = Template(*(_COMMON if preload is None else (preload,)))
    return new, new.fork(target, connection, argument)


def _fork_when_told(connection: "Connection[Any, Any]", modules: tuple[str, ...]) -> None:
    # Whoever started the owner may have it ignored: then there are no exit codes.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for module in modules:
        importlib.import_module(module)
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        if isinstance(request, int):
            connection.send(os.waitstatus_to_exitcode(os.waitpid(request, 0)[1]))
            continue
        target, argument, environment, folder, path = request
        handle = reduction.recv_handle(connection)
        pid = os.fork()
        if pid:
            os.close(handle)
            connection.send(pid)
            continue
        connection.close()
        status = 1
        try:
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            sys.path[:] = path
            target(Connection(handle), argument)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # Nothing of the template's, which it would clean up once more.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
