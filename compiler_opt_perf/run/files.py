# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes files completely or not at all, reads untrusted files, and locks."""

import contextlib
import ctypes
import errno
import fcntl
import glob
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from absl import logging

from compiler_opt_perf.run.errors import UserError

# Constants of <fcntl.h> and <linux/fs.h>.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_LITTLE_SPACE = 4 * 1024 * 1024

# Limits of a file that is read as a whole, and of a line. Our programs stay far below them.
_MOST_BYTES = 1 << 30
_LONGEST_LINE = 1 << 24


class FileWriteError(UserError):
    """A result could not be written; nothing is left under its final name."""


class FileLockedError(UserError):
    """Another process holds a lock."""


_NO_SPACE = (
    "no space left on the device; free some (or choose another output folder) and run the command "
    "again"
)
_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)


def explained(error: Exception) -> str:
    """An error as a message; for an OSError with its file, cause and, for some, a remedy.

    Python's own text is "[Errno 28] No space left on device", often without a file.
    """
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    place = "" if error.filename is None else f"{_name(error.filename)}: "
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        # An error of write(), unlike one of open(), names no file.
        place = place or f"the output's folder, or {tempfile.gettempdir()} (TMPDIR): "
        return f"{place}{_NO_SPACE}"
    remedy = "; name another one, or change its permissions" if error.errno in _NOT_ALLOWED else ""
    return f"{place}{error.strerror}{remedy}"


def _name(file: Any) -> str:
    """The file of an error: its name, or the number of its descriptor."""
    return f"open file {file}" if isinstance(file, int) else os.fsdecode(file)


def _explain(path: Path, error: OSError) -> FileWriteError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FileWriteError(f"{path}: {_NO_SPACE}")
    remedy = "; choose another output folder" if error.errno in _NOT_ALLOWED else ""
    return FileWriteError(f"{path}: cannot be written: {error.strerror or error}{remedy}")


def _concerns(error: OSError, path: Path) -> bool:
    """Whether an error comes from writing `path`, and not, say, from a missing input."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or error.filename is None:
        # An error of write(), unlike one of open(), names no file.
        return True
    found = Path(os.path.abspath(_name(error.filename)))
    folder = Path(os.path.abspath(path.parent))
    # The path, its temporary file or folder, a file in that folder, or a parent folder.
    return found in (folder, *folder.parents) or any(
        part.parent == folder and (part.name == path.name or part.name.startswith(f".{path.name}."))
        for part in (found, *found.parents)
    )


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
        temporary = _beside(path, "tmp")
        temporary.touch(exist_ok=False)
        # The mode of an ordinary file. The body may put a file of another mode in its place.
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(mode)
        os.replace(temporary, path)
    except OSError as error:
        if not _concerns(error, path):
            raise
        raise _explain(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_directory(path: Path, *, ours: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """Yields a new directory beside `path`; it takes the place of `path` when the body succeeds.

    Args:
      ours: whether a non-empty directory may be replaced; None for any directory.

    Raises:
      FileWriteError: the disk is full, the folder cannot be written, or what is at `path` is not
        ours.
    """
    temporary: Path | None = None
    _require_replaceable(path, ours)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path, "tmp")
        temporary.mkdir()
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        temporary.chmod(mode)
        _require_replaceable(path, ours)
        if path.is_dir():
            old = _beside(path, "old")
            old.mkdir()
            if _exchange(temporary, path):
                os.replace(temporary, old)
            else:
                # In two steps; between them there is no directory.
                os.replace(path, old)
                os.replace(temporary, path)
            # This one, and the ones of runs that were killed at this point.
            for old in path.parent.glob(f".{glob.escape(path.name)}.*.old"):
                shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, path)
    except OSError as error:
        if not _concerns(error, path):
            raise
        raise _explain(path, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds the lock of a folder, or of a lock file that is made.

    Args:
      wait: whether a second process waits, or fails.

    Raises:
      FileLockedError: another process holds the lock, and `wait` is False.
      OSError: the lock file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_WRONLY | os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise FileLockedError(f"{path}: is held by another run; wait for its end") from None
            logging.info("%s is held by another run: waiting for it", path)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _beside(path: Path, suffix: str) -> Path:
    """A hidden name of its own in the same folder."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{suffix}")


def make_executable(path: Path) -> None:
    """Allows everybody who may read a file to execute it. Raises OSError."""
    mode = path.stat().st_mode
    path.chmod(stat.S_IMODE(mode) | (mode & 0o444) >> 2)


def is_folder_name(name: str) -> bool:
    """Whether a name is safe for a folder: no separators, no leading dot, plain characters."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) is not None and len(name) <= 200


def files_of(folder: Path) -> list[Path]:
    """All files in a folder and its subfolders, sorted by path.

    Folders that are copied or hashed as a whole hold no symbolic links: the copy would hold the
    link's target, be it /etc/shadow, and the hash would not.

    Raises:
      OSError: the folder cannot be read, or holds a symbolic link or a special file.
    """
    found = []
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            found += files_of(path)
        else:
            require_file(path)
            found.append(path)
    return sorted(found)


def require_file(path: Path) -> None:
    """Raises OSError unless the path is a regular file; a symbolic link is none."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "is a symbolic link; put a copy of its file in its place", path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "no regular file", path)


def copy_folder(source: Path, target: Path) -> None:
    """Copies the files of a folder (`files_of`) to a new folder. Raises OSError."""
    target.mkdir(parents=True)
    for path in files_of(source):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _require_replaceable(path: Path, ours: Callable[[Path], bool] | None) -> None:
    if ours is None or not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        raise FileWriteError(f"{path}: is not a folder; choose another output folder")
    if any(path.iterdir()) and not ours(path):
        raise FileWriteError(
            f"{path}: holds files that this command did not write, and it would delete them; "
            "choose a new or empty output folder"
        )


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges the names of two directories in one step; False if the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def require_space(folder: Path) -> None:
    """Called after a program failed, to tell a full disk from other causes.

    Raises:
      FileWriteError: `folder` has no room for 4 MiB.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            os.posix_fallocate(stream.fileno(), 0, _LITTLE_SPACE)
    except OSError as error:
        raise _explain(folder, error) from error


def open_input(path: Path) -> io.BufferedReader:
    """Opens an untrusted file for reading. Only regular files: reading a pipe might never end.

    Raises:
      OSError: it cannot be opened, or is not a regular file.
    """
    # Opening a pipe would otherwise wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code) if stat.S_ISDIR(mode) else "no regular file", path)
    return os.fdopen(descriptor, "rb")


def read_input(path: Path, most: int = _MOST_BYTES) -> bytes:
    """The content of an untrusted file. Raises OSError, also for more than `most` bytes."""
    with open_input(path) as stream:
        if os.fstat(stream.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"has more than {most:,} bytes", path)
        return stream.read()


def input_lines(path: Path) -> Iterator[str]:
    """The lines of an untrusted text of any length; replaces what is not UTF-8.

    Raises:
      OSError: it cannot be read, or a line is too long for a text file.
    """
    with io.TextIOWrapper(open_input(path), encoding="utf-8", errors="replace") as lines:
        while line := lines.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise OSError(errno.EFBIG, f"has a line of more than {_LONGEST_LINE:,} bytes", path)
            yield line


def write_text(path: Path, text: str) -> None:
    """Writes `text` (UTF-8) atomically. Raises FileWriteError."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON with a final newline, atomically. Raises FileWriteError."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def sha256(path: Path) -> str:
    """The file's SHA-256 as lower-case hexadecimal digits."""
    with open_input(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def has_sha256(path: Path, digest: str) -> bool:
    """Whether an untrusted file, of those that are read as a whole, has this SHA-256.

    A larger one has not, and is not hashed: that takes seconds a gigabyte. Raises OSError.
    """
    with open_input(path) as stream:
        if os.fstat(stream.fileno()).st_size > _MOST_BYTES:
            return False
        return hashlib.file_digest(stream, "sha256").hexdigest() == digest
