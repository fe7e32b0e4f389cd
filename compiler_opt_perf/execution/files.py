# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that appear complete or not at all."""

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class FileWriteError(Exception):
    """A result could not be written; nothing is left under its final name."""


def _explain(path: Path, error: OSError) -> FileWriteError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FileWriteError(
            f"{path}: no space left on the device; free some (or choose another output folder) "
            "and run the command again"
        )
    return FileWriteError(f"{path}: cannot be written: {error.strerror or error}")


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; renames it to `path` when the body succeeds.

    The rename is atomic, so that a reader (or a second run) sees the old file or the new one. When
    the body raises, the temporary file is removed and `path` is as it was.

    Raises:
      FileWriteError: the disk is full or the folder cannot be written.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes files private; results are ordinary files.
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise _explain(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields a new directory beside `path`; it takes the place of `path` when the body succeeds.

    Raises:
      FileWriteError: the disk is full or the folder cannot be written.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        yield temporary
        temporary.chmod(0o755)
        if path.is_dir():
            # A directory cannot be replaced in one step: move the old one out of the way first.
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
            os.replace(path, old)
            os.replace(temporary, path)
            # This one, and what a run left that was killed at this place.
            for old in path.parent.glob(f".{glob.escape(path.name)}.*.old"):
                shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, path)
    except OSError as error:
        raise _explain(path, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes `text` (UTF-8) atomically. Raises FileWriteError."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON with a final newline, atomically. Raises FileWriteError."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def sha256(path: Path) -> str:
    """The file's SHA-256 as lower-case hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
