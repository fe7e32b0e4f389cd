# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A folder for temporary files that is gone with the process, however that ends."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = Path("/dev/shm")
# Less than this, and a full memory would end what a disk has room for.
_ROOM_BYTES = 2 << 30
# Waits for the end of its input, which nobody writes to: the kernel ends it with our last process
# that has the other side. Not a child of ours: some programs end all their children as they end.
_REMOVE_LATER = 'exec 3<&0; { read -r _ <&3; rm -rf -- "$1"; } >/dev/null 2>&1 &'


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Makes the folder, in memory where there is room; it is removed at the end of the block.

    It is removed also if the process is killed. The environment variable TMPDIR says where it is,
    if it is set.
    """
    folder = Path(tempfile.mkdtemp(prefix="compiler-opt-perf-", dir=_parent()))
    try:
        watcher = subprocess.Popen(
            ["sh", "-c", _REMOVE_LATER, "sh", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C goes to all processes of a terminal.
            start_new_session=True,
        )
        watcher.wait()
        assert watcher.stdin is not None
        with watcher.stdin:
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parent() -> str | None:
    """Where temporary files go; None for Python's own choice."""
    try:
        room = shutil.disk_usage(_MEMORY).free
    except OSError:
        return None
    is_usable = room >= _ROOM_BYTES and os.access(_MEMORY, os.W_OK | os.X_OK)
    return os.fspath(_MEMORY) if is_usable and "TMPDIR" not in os.environ else None
