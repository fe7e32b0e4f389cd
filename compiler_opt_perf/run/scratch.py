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
# With less free memory, temporary files go to the disk.
_ROOM_BYTES = 2 << 30
# Of paths; no folder for temporary files is that deep.
_PATH_LENGTH = 200
# Waits for the end of its input, which comes when our last process closes the other side. It is no
# child of ours: some programs end all their children as they end.
_REMOVE_LATER = 'exec 3<&0; { read -r _ <&3; rm -rf -- "$1"; } >/dev/null 2>&1 &'


@contextlib.contextmanager
def scratch_folder(parent: str | None = None) -> Iterator[Path]:
    """Makes the folder, and removes it at the end of the block or when the process is killed.

    Args:
      parent: the folder to make it in. By default TMPDIR if that is set, else memory if there is
        room, else Python's own choice.
    """
    folder = Path(tempfile.mkdtemp(prefix="compiler-opt-perf-", dir=parent or _parent()))
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


def with_long_path(folder: Path) -> Path:
    """Makes a folder inside whose path has `_PATH_LENGTH` characters, wherever `folder` is.

    A program's stack begins after its path. Where that moves, simulated caches miss elsewhere.
    """
    inside = folder / "x".ljust(_PATH_LENGTH - len(str(folder)) - 1, "x")
    inside.mkdir()
    return inside


def _parent() -> str | None:
    """The folder for temporary files; None for Python's own choice."""
    try:
        room = shutil.disk_usage(_MEMORY).free
    except OSError:
        return None
    is_usable = room >= _ROOM_BYTES and os.access(_MEMORY, os.W_OK | os.X_OK)
    return os.fspath(_MEMORY) if is_usable and "TMPDIR" not in os.environ else None
