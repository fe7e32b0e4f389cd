# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tasks carry the content of files, not their paths, so that any machine can do them.

A dataclass says which of its paths travel, by their types:

  Content   a file, or a folder of files: what is in it goes with the task, and the worker finds it
            in a folder of its own. What it has already is not sent again.
  Manifest  a JSON file, and with it the files beside it that its members `file` name.
  Tool      a program or library: it stays where it is, and every machine must have the same one,
            told by its SHA-256, at the same path.

Any other path is sent as it is and means something on this machine only.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import pickle
import re
import shutil
import socket
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input, require_file, sha256
from compiler_opt_perf.run.json_text import JsonError, parse_json


def _own_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if one.is_file())
    for one in files:
        require_file(one)
    return files


@dataclass(frozen=True)
class Travels:
    """How a path travels.

    Attributes:
      files: what is sent of it, files of one folder; those of a tool stay.
      is_tool: whether it stays.
    """

    files: Callable[[Path], Sequence[Path]] = _own_files
    is_tool: bool = False


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
        # Whoever reads it says what is damaged.
        find(parse_json(read_input(path)))
    beside = [one for name in sorted(names) if (one := path.with_name(name)).is_file()]
    for one in beside:
        require_file(one)
    return [path, *beside]


# The names of these types, in an annotation that is a text.
_MARK = re.compile(r"\b(Content|Manifest|Tool)\b")
Content = Annotated[Path, Travels()]
Manifest = Annotated[Path, Travels(manifest_files)]
Tool = Annotated[Path, Travels(is_tool=True)]


class NodeError(UserError):
    """A machine that cannot do what others can; names it, the path and the remedy."""


@dataclass(frozen=True)
class Folder:
    """What a path stands for: files of one folder.

    Attributes:
      digest: of names and contents.
      name: of the file that the path is of; empty where it is of the folder.
      files: on this machine.
      size: of all files, in bytes.
    """

    digest: str
    name: str
    files: tuple[Path, ...]
    size: int

    @classmethod
    def of(cls, path: Path, files: Sequence[Path]) -> "Folder":
        """Reads the files. Raises OSError."""
        hashed = hashlib.sha256()
        for file in files:
            hashed.update(f"{file.name}\0{_digest(file)}\0".encode())
        size = sum(file.stat().st_size for file in files)
        name = "" if path.is_dir() else path.name
        return cls(hashed.hexdigest(), name, tuple(files), size)

    def read(self) -> dict[str, bytes]:
        """The contents by name. Raises OSError."""
        return {file.name: read_input(file) for file in self.files}


@dataclass(frozen=True)
class Parcel:
    """A task, ready to be sent.

    Attributes:
      message: function and item, with digests in the place of contents.
      folders: the contents, by digest.
    """

    message: bytes
    folders: Mapping[str, Folder]

    @property
    def size(self) -> int:
        """Of its contents, in bytes."""
        return sum(folder.size for folder in self.folders.values())


def pack(task: Any) -> Parcel:
    """Makes anything that can be pickled ready to be sent. Raises OSError: a file is not there."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dump(task)
    return Parcel(buffer.getvalue(), pickler.folders)


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, protocol: int):
        super().__init__(stream, protocol)
        self.folders: dict[str, Folder] = {}

    def reducer_override(self, value: Any) -> Any:
        """Takes marked paths out of dataclasses."""
        marks = _marks(type(value))
        if not marks:
            return NotImplemented
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        sent = {
            name: _each(Path, fields.pop(name), functools.partial(self._leave, mark))
            for name, mark in marks.items()
        }
        return _rebuilt, (type(value), fields, sent)

    def _leave(self, mark: Travels, path: Path) -> "_Sent":
        if mark.is_tool:
            return _SentTool(path, _digest(path) if path.is_file() else "", _state(path))
        folder = Folder.of(path, mark.files(path))
        self.folders[folder.digest] = folder
        return _SentContent(path, folder.digest, folder.name)


def _marks(kind: type) -> dict[str, Travels]:
    """How the fields of a class travel, of those that do."""
    return _marks_of(kind) if dataclasses.is_dataclass(kind) else {}


@functools.cache
def _marks_of(kind: Any) -> dict[str, Travels]:
    names = [one.name for one in dataclasses.fields(kind)]
    try:
        # Annotations may be texts, such as all of a module that imports them from __future__.
        types = typing.get_type_hints(kind, include_extras=True)
    except NameError:
        # Of names for type checkers alone.
        types = {one.name: one.type for one in dataclasses.fields(kind)}
        for name, own in types.items():
            if isinstance(own, str) and _MARK.search(own):
                raise TypeError(f"{kind.__name__}.{name}: {own!r} cannot be resolved") from None
    found = {name: _mark(types[name]) for name in names}
    return {name: mark for name, mark in found.items() if mark is not None}


def _mark(annotation: Any) -> Travels | None:
    """That of a type, or of what it is a union, a tuple or a mapping of."""
    own = getattr(annotation, "__metadata__", ())
    marks = [one for one in own if isinstance(one, Travels)]
    if not own:
        marks = [one for part in typing.get_args(annotation) if (one := _mark(part)) is not None]
    return marks[0] if marks else None


def _each(kind: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """A value of a kind, or those in a collection or a mapping, changed; None stays.

    Raises:
      TypeError: something else, which would be sent as it is and mean nothing elsewhere.
    """
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple | list | set | frozenset):
        return type(value)(_each(kind, one, change) for one in value)
    if isinstance(value, Mapping):
        return {key: _each(kind, one, change) for key, one in value.items()}
    if value is not None:
        raise TypeError(f"a marked path in a {type(value).__name__} cannot travel")
    return value


# On the worker's side.


class Store:
    """The folder in which a worker keeps contents, and where its tasks find them."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._originals: dict[str, str] = {}

    def keep(self, digest: str, files: Mapping[str, bytes]) -> None:
        """Writes files. Raises OSError: no room."""
        folder = self._folder / digest[:16]
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)

    def drop(self, digests: Iterable[str]) -> None:
        """Forgets contents."""
        for digest in digests:
            shutil.rmtree(self._folder / digest[:16], ignore_errors=True)

    def unpack(self, message: bytes) -> Any:
        """What `pack` packed, with paths of this store.

        Raises:
          NodeError: this machine lacks a tool.
        """
        self._originals = {}
        return _Unpickler(self, message).load()

    def path(self, sent: "_SentContent") -> Path:
        """Where a content is."""
        folder = self._folder / sent.digest[:16]
        path = folder / sent.name if sent.name else folder
        self._originals[str(path)] = str(sent.path)
        return path

    def in_terms_of_the_sender(self, error: Exception) -> Exception:
        """The error with the sender's paths in the place of ours, which soon are gone."""

        def named(word: Any) -> Any:
            for ours, theirs in self._originals.items() if isinstance(word, str) else ():
                word = word.replace(ours, theirs)
            return word

        words = tuple(map(named, error.args))
        try:
            return error if words == error.args else type(error)(*words)
        except Exception:
            # It needs other arguments than those that it keeps.
            return error


class _Sent(Protocol):
    """What takes the place of a path on its way."""

    def arrived(self, store: Store) -> Path: ...


@dataclass(frozen=True)
class _SentContent:
    path: Path
    digest: str
    name: str

    def arrived(self, store: Store) -> Path:
        return store.path(self)


@dataclass(frozen=True)
class _SentTool:
    path: Path
    digest: str
    state: tuple[int, ...]

    def arrived(self, store: Store) -> Path:
        # The very file, where the machine is the sender's or shares its files.
        if _state(self.path) != self.state and not self._is_same():
            what = "is another one than" if self.path.exists() else "is missing, unlike"
            raise NodeError(
                f"node {socket.gethostname()}: {self.path} {what} where the run was started; copy "
                f"the one with SHA-256 {self.digest} there, to the same path, and run the command "
                "again to go on"
            )
        return self.path

    def _is_same(self) -> bool:
        return self.path.is_file() and _digest(self.path) == self.digest


class _Unpickler(pickle.Unpickler):
    def __init__(self, store: Store, message: bytes):
        super().__init__(io.BytesIO(message))
        self._store = store

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return functools.partial(found, self._store) if found is _rebuilt else found


def _rebuilt(
    store: Store, kind: type[Any], fields: Mapping[str, Any], sent: Mapping[str, Any]
) -> Any:
    value = object.__new__(kind)
    for name, one in fields.items():
        object.__setattr__(value, name, one)
    for name, one in sent.items():
        here = _each(_SentContent | _SentTool, one, lambda part: part.arrived(store))
        object.__setattr__(value, name, here)
    return value


# Digests of files, which are asked for with each task.


def _state(path: Path) -> tuple[int, ...]:
    """What changes with the file; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _digest(path: Path) -> str:
    return _digest_of(path, _state(path))


@functools.lru_cache(maxsize=1 << 16)
def _digest_of(path: Path, state: tuple[int, ...]) -> str:
    return sha256(path)
