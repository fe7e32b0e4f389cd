# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the files that a task reads, so that their contents can be sent to another machine.

A dataclass marks its paths by their types:

  Content   A file, or a folder of files. Its contents travel with the task.
  Manifest  A JSON file. The files beside it that its members `file` name travel with it.
  Tool      A program or library. It does not travel: every machine needs the same file, compared by
            SHA-256, at the same path.

A path of any other type is sent as it is, and is valid on this machine only.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import pickle
import shutil
import socket
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import open_input, read_input, require_file, sha256
from compiler_opt_perf.run.json_text import JsonError, parse_json

# A worker of a cluster keeps at most so many bytes of contents.
_KEPT_BYTES = 128 << 20


def _own_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if one.is_file())
    for one in files:
        require_file(one)
    return files


def manifest_files(path: Path) -> list[Path]:
    """A JSON file, and the files beside it that its members `file` name. Raises OSError."""
    names: set[str] = set()

    def find(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("file"), str):
                names.add(Path(value["file"]).name)
            value = list(value.values())
        for one in value if isinstance(value, list) else ():
            find(one)

    with contextlib.suppress(JsonError):
        # The task that reads it reports the damage.
        find(parse_json(read_input(path)))
    beside = [one for name in sorted(names) if (one := path.with_name(name)).is_file()]
    for one in beside:
        require_file(one)
    return [path, *beside]


@dataclass(frozen=True)
class _Mark:
    """Finds the files of a marked path; None for a tool, which does not travel."""

    files: Callable[[Path], Sequence[Path]] | None


Content = Annotated[Path, _Mark(_own_files)]
Manifest = Annotated[Path, _Mark(manifest_files)]
Tool = Annotated[Path, _Mark(None)]


class NodeError(UserError):
    """A machine lacks a tool; the message names the machine, the path and the remedy."""


@dataclass(frozen=True)
class Marked:
    """A marked path in a task that is on its way.

    Attributes:
      path: the path on the sender's machine.
      files: the files that travel; None for a tool.
      digest: SHA-256 of a tool, or of the names and contents of the files; empty for a task that
        stays on its machine.
    """

    path: Path
    files: tuple[Path, ...] | None
    digest: str = ""

    @property
    def size(self) -> int:
        """Size of the files in bytes. Raises OSError."""
        return sum(file.stat().st_size for file in self.files or ())

    def read(self) -> dict[str, bytes]:
        """The contents by file name. Raises OSError."""
        return {file.name: read_input(file) for file in self.files or ()}

    def local_path(self) -> Path:
        """The path itself. Raises OSError if one of its files cannot be read."""
        for file in self.files or ():
            open_input(file).close()
        return self.path


def pack(task: Any, *, travels: bool) -> tuple[bytes, list[Marked]]:
    """Pickles a task, with a reference in the place of each marked path.

    Args:
      travels: whether the task may run on another machine.

    Returns:
      The pickled task, and the marked paths that travel.

    Raises:
      OSError: a file that travels cannot be read.
      TypeError: a marked field holds something else than paths.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, travels)
    pickler.dump(task)
    return buffer.getvalue(), pickler.contents


def unpack(message: bytes, locate: Callable[[Marked], Path]) -> Any:
    """Unpickles a task; `locate` gives the path that a marked path has here."""
    return _Unpickler(message, locate).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, message: bytes, locate: Callable[[Marked], Path]):
        super().__init__(io.BytesIO(message))
        self._locate = locate

    def persistent_load(self, pid: Any) -> Path:
        return self._locate(Marked(*pid))


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, travels: bool):
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._travels = travels
        self.contents: list[Marked] = []

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not Marked:
            return None
        return value.path, value.files, value.digest

    def reducer_override(self, value: Any) -> Any:
        """Replaces the marked paths of dataclasses."""
        kind: Any = type(value)
        if not hasattr(kind, "__dataclass_fields__") or not (marks := _marks(kind)):
            return NotImplemented
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        for name, mark in marks.items():
            fields[name] = _each_path(fields[name], functools.partial(self._leave, mark))
        return _rebuilt, (kind, fields)

    def _leave(self, mark: _Mark, path: Path) -> Marked:
        if mark.files is None:
            digest = _digest(path) if self._travels and path.is_file() else ""
            return Marked(path, None, digest)
        files = tuple(mark.files(path))
        digest = _digest_of_all(files) if self._travels else ""
        marked = Marked(path, files, digest)
        self.contents.append(marked)
        return marked


@functools.cache
def _marks(kind: Any) -> dict[str, _Mark]:
    """The marked fields of a dataclass. Raises NameError: an annotation cannot be resolved."""
    # Annotations may be strings, such as all of a module that imports them from __future__.
    types = typing.get_type_hints(kind, include_extras=True)
    found = {one.name: _mark_of(types[one.name]) for one in dataclasses.fields(kind)}
    return {name: mark for name, mark in found.items() if mark is not None}


def _mark_of(annotation: Any) -> _Mark | None:
    """The mark of a type, or of the parts of a union, a collection or a mapping."""
    own = getattr(annotation, "__metadata__", ())
    marks = [one for one in own if isinstance(one, _Mark)]
    if not own:
        marks = [one for part in typing.get_args(annotation) if (one := _mark_of(part)) is not None]
    return marks[0] if marks else None


def _each_path(value: Any, change: Callable[[Path], Any]) -> Any:
    """Changes a path, or each path of a collection or a mapping; None stays.

    Raises:
      TypeError: another value, which would mean nothing on another machine.
    """
    if isinstance(value, Path):
        return change(value)
    if isinstance(value, tuple | list | set | frozenset):
        return type(value)(_each_path(one, change) for one in value)
    if isinstance(value, Mapping):
        return {key: _each_path(one, change) for key, one in value.items()}
    if value is not None:
        raise TypeError(f"a marked path in a {type(value).__name__} cannot travel")
    return value


def _rebuilt(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    value = object.__new__(kind)
    for name, one in fields.items():
        object.__setattr__(value, name, one)
    return value


def _digest_of_all(files: Sequence[Path]) -> str:
    hashed = hashlib.sha256()
    for file in files:
        hashed.update(f"{file.name}\0{_digest(file)}\0".encode())
    return hashed.hexdigest()


def _digest(path: Path) -> str:
    found = path.stat()
    return _digest_of(path, (found.st_ino, found.st_size, found.st_mtime_ns))


@functools.lru_cache(maxsize=1 << 16)
def _digest_of(path: Path, state: tuple[int, ...]) -> str:
    return sha256(path)


class Store:
    """A folder in which a worker of a cluster keeps contents."""

    def __init__(self, folder: Path):
        self._folder = folder
        # Sizes by digest, the least recently used first.
        self._kept: dict[str, int] = {}

    def hold(self, contents: Mapping[str, Callable[[], Mapping[str, bytes]]]) -> None:
        """Fetches the contents of a task that are not here, and drops old ones.

        Args:
          contents: what fetches the files by name, for each digest.

        Raises:
          OSError: there is no room.
        """
        for digest, fetch in contents.items():
            size = self._kept.pop(digest, None)
            if size is None:
                folder = self._folder / digest
                folder.mkdir(parents=True, exist_ok=True)
                files = fetch()
                for name, content in files.items():
                    (folder / name).write_bytes(content)
                size = sum(map(len, files.values()))
            self._kept[digest] = size
        for digest in [one for one in self._kept if one not in contents]:
            if sum(self._kept.values()) <= _KEPT_BYTES:
                break
            del self._kept[digest]
            shutil.rmtree(self._folder / digest, ignore_errors=True)

    def unpack(self, message: bytes) -> tuple[Any, dict[str, str]]:
        """Unpickles a task whose contents are held.

        Returns:
          The task, and the sender's paths by the paths here.

        Raises:
          NodeError: this machine lacks a tool.
        """
        senders: dict[str, str] = {}

        def locate(marked: Marked) -> Path:
            if marked.files is None:
                return _require_tool(marked)
            folder = self._folder / marked.digest
            path = folder if marked.path not in marked.files else folder / marked.path.name
            senders[str(path)] = str(marked.path)
            return path

        return unpack(message, locate), senders


def _require_tool(tool: Marked) -> Path:
    here = _digest(tool.path) if tool.path.is_file() else ""
    if here != tool.digest:
        problem = "differs from" if tool.path.exists() else "is missing, unlike"
        raise NodeError(
            f"node {socket.gethostname()}: {tool.path} {problem} the one where the run was "
            f"started; copy the file with SHA-256 {tool.digest} there, to the same path, and run "
            "the command again to go on"
        )
    return tool.path


def renamed(error: Exception, names: Mapping[str, str]) -> Exception:
    """The error with other paths in its arguments, where it can be made of its arguments."""

    def rename(word: Any) -> Any:
        for old, new in names.items() if isinstance(word, str) else ():
            word = word.replace(old, new)
        return word

    words = tuple(map(rename, error.args))
    try:
        return error if words == error.args else type(error)(*words)
    except Exception:
        return error
