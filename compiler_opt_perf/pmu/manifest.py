# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The manifest of a PMU profile: which events, in which files, of which program."""

import dataclasses
import json
import math
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from compiler_opt_perf.execution.files import read_input, write_text
from compiler_opt_perf.execution.json_text import JsonError, parse_json
from compiler_opt_perf.pmu.binary import build_id
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.events import KINDS, Kind, Rate
from compiler_opt_perf.pmu.function_table import FunctionTable

FORMAT = "compiler-opt-perf/pmu-profile"
VERSION = 3
SUFFIX = ".pmu.json"

_COLLECT_AGAIN = "collect the profile again"

# Counts are of 64 bits in the compiler.
_LARGEST = 2**64
_LONGEST_NAME = 100

Value = TypeVar("Value")


@dataclass(frozen=True)
class Program:
    """The profiled binary: its name, and the build-id (hexadecimal) that the linker gave it."""

    path: str
    build_id: str


@dataclass(frozen=True)
class Collector:
    """How the profile was made.

    Attributes:
      backend: "callgrind" or "perf".
      tool: name and version of the program that counted.
      command: the profiled command line.
      options: of the tool.
      cache_geometry: simulated caches, "size,ways,line" in bytes by name (I1, D1, LL); empty when
        nothing was simulated.
      runs: how many runs the counts are of; `command` is that of the first.
      within: the function of whose calls the counts are, with all that they call; empty when they
        are of whole runs.
    """

    backend: str
    tool: str
    command: tuple[str, ...]
    options: tuple[str, ...]
    cache_geometry: Mapping[str, str]
    runs: int = 1
    within: str = ""

    @property
    def scope(self) -> str:
        """What the counts are of, in words."""
        return f"calls of {self.within}" if self.within else "whole runs"


@dataclass(frozen=True)
class FileRecord:
    """A file of the profile as it was written.

    Attributes:
      file: its path, relative to the manifest.
      bytes: its size.
      xxh3: its checksum, XXH3 of 64 bits, as 16 lower-case hexadecimal digits. It finds damage, and
        costs the compiler a tenth of what SHA-256 would.
    """

    file: str
    bytes: int
    xxh3: str

    @classmethod
    def of(cls, path: Path, name: str | None = None) -> "FileRecord":
        """The record of the file at `path`, under the name that it will have. Raises OSError."""
        data = path.read_bytes()
        return cls(name or path.name, len(data), xxhash.xxh3_64_hexdigest(data))


UNWRITTEN = FileRecord("", 0, "")


@dataclass(frozen=True)
class EventFile:
    """One event's sample profile.

    Attributes:
      name: of the event.
      unit: what one count stands for.
      period: events that one sample stands for; counts in the file are multiplied already.
      kind: "sum" or "max" over the instructions of a line.
      precise: whether counts belong to exactly the instruction they are attributed to.
      total: counts in the program's own code.
      located: those of them that have a source location and are therefore in the file.
      outside: counts in other objects (shared libraries, the loader), which are in no file.
      profile: the sample profile, each count in its inlining context; `UNWRITTEN` before there is
        one.
      flattened: the same counts, summed over the contexts; None when only `profile` is there.
    """

    name: str
    unit: str
    period: int
    kind: Kind
    precise: bool
    total: int
    located: int
    outside: int = 0
    profile: FileRecord = UNWRITTEN
    flattened: FileRecord | None = None


@dataclass(frozen=True)
class Manifest:
    """A PMU profile, as described in docs/formats.md.

    Attributes:
      path: where the manifest was loaded from or saved to.
      program: what was profiled.
      collector: how.
      events: the sample profiles.
      rates: ratios of two events that a compiler can ask for.
      sources: the table that reports find source lines by, JSON: linkage name ->
        [file, first line]; None when there is none.
      functions: the table of all functions of the binary, whether they ran or not; None when there
        is none.
      index: the tables of the sample profiles, for compilers; None when there is none.
    """

    path: Path = field(compare=False)
    program: Program
    collector: Collector
    events: tuple[EventFile, ...]
    rates: tuple[Rate, ...]
    sources: FileRecord | None = None
    functions: FileRecord | None = None
    index: FileRecord | None = None

    @classmethod
    def load(cls, path: Path) -> "Manifest":
        """Reads a manifest and checks that its sample profiles are as they were written.

        Raises:
          PmuError: a file is missing, truncated, changed, or not in this format; names the file
            and the line or the field.
        """
        try:
            document = parse_json(read_input(path))
        except OSError as error:
            raise PmuError(f"{path}: cannot be read: {error.strerror}") from error
        except JsonError as error:
            truncated = " (a truncated file?)" if error.place else ""
            raise PmuError(
                f"{path}{error.place}: not JSON: {error}{truncated}; {_COLLECT_AGAIN}"
            ) from error
        manifest = _Fields(path, "", document).manifest()
        manifest.verify_files()
        return manifest

    def to_json(self) -> str:
        """The manifest as it stands in its file."""
        document = dataclasses.asdict(self)
        del document["path"]
        # The fields of an event's file stand among its own.
        for event in document["events"]:
            event.update(event.pop("profile"))
        document = {"format": FORMAT, "version": VERSION, **document}
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    def save(self) -> None:
        """Writes the manifest to its path, atomically. Raises FileWriteError."""
        write_text(self.path, self.to_json())

    def event(self, name: str) -> EventFile:
        """The event called `name`. Raises KeyError."""
        return {event.name: event for event in self.events}[name]

    def file(self, event: EventFile) -> Path:
        """The path of `event`'s sample profile."""
        return self.path.parent / event.profile.file

    def files(self) -> list[tuple[str, FileRecord]]:
        """What each file is, for messages, and its record."""
        files = []
        for event in self.events:
            files.append((f"event {event.name!r}", event.profile))
            if event.flattened is not None:
                files.append((f"event {event.name!r}, flattened", event.flattened))
        if self.sources is not None:
            files.append(("sources", self.sources))
        if self.functions is not None:
            files.append(("functions", self.functions))
        if self.index is not None:
            files.append(("index", self.index))
        return files

    def read_functions(self) -> FunctionTable | None:
        """The functions of the binary; None when the profile does not know. Raises PmuError."""
        if self.functions is None:
            return None
        return FunctionTable.read(self.path.parent / self.functions.file)

    def verify_files(self) -> None:
        """Checks presence, size and checksum of each file. Raises PmuError."""
        for what, record in self.files():
            self._verify_file(what, record)

    def _verify_file(self, what: str, record: FileRecord) -> None:
        file = self.path.parent / record.file
        where = f"{self.path}: {what}: {file}"
        try:
            # Before it is read: a pipe has no end, and another file may be of any size.
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                raise PmuError(f"{where}: is no regular file; {_COLLECT_AGAIN}")
            if status.st_size != record.bytes:
                raise PmuError(
                    f"{where}: has {status.st_size} bytes, expected {record.bytes} (truncated, or "
                    f"of another run); copy it again, or {_COLLECT_AGAIN}"
                )
            found = FileRecord.of(file)
            if found.xxh3 != record.xxh3.lower():
                raise PmuError(
                    f"{where}: its checksum (xxh3) differs from the manifest's (damaged, or of "
                    f"another run); copy it again, or {_COLLECT_AGAIN}"
                )
        except OSError as error:
            raise PmuError(
                f"{where}: cannot be read: {error.strerror}; the files of a profile must stay "
                "where they were relative to the manifest"
            ) from error

    def verify_binary(self, binary: Path) -> None:
        """Checks that `binary` is the profiled one, by its build-id. Raises PmuError."""
        found = build_id(binary)
        if found != self.program.build_id:
            raise PmuError(
                f"{binary}: its build-id is {found}, but {self.path} is a profile of "
                f"{self.program.path} with build-id {self.program.build_id}; "
                f"profile this binary, or take the one that was profiled"
            )


class _Fields:
    """Reads the fields of one JSON object, naming the place of what is wrong."""

    def __init__(self, path: Path, where: str, value: Any):
        self._path = path
        self._where = where
        self._value: dict[str, Any] = value if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            raise self._error("", f"expected an object, found {_shown(value)}")

    def _error(self, name: str, problem: str, remedy: str = _COLLECT_AGAIN) -> PmuError:
        place = ".".join(part for part in (self._where, name) if part) or "the document"
        return PmuError(f"{self._path}: {place}: {problem}; {remedy}")

    def get(self, name: str, kind: type[Value]) -> Value:
        """The field `name`, which must be there and of type `kind`; integers are floats too."""
        if name not in self._value:
            raise self._error(name, "is missing")
        value = self._value[name]
        if kind is float and type(value) is int and abs(value) < _LARGEST:
            value = float(value)
        if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
            raise self._error(name, f"expected {_KIND_NAMES[kind]}, found {_shown(value)}")
        return value

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def count(self, name: str) -> int:
        """A field that counts something: an integer of 0 or more."""
        value = self.get(name, int)
        if value < 0:
            raise self._error(name, f"expected 0 or more, found {value}")
        if value >= _LARGEST:
            raise self._error(name, f"expected less than 2**64, found {_shown(value)}")
        return value

    def name(self, name: str) -> str:
        """A field that becomes part of names of files and of tables."""
        value = self.get(name, str)
        if not value or not value.isprintable() or "/" in value or len(value) > _LONGEST_NAME:
            raise self._error(
                name,
                f"expected a name of printable characters without '/', found {_shown(value)}",
            )
        return value

    def object(self, name: str) -> "_Fields":
        return _Fields(self._path, f"{self._where}.{name}".lstrip("."), self.get(name, dict))

    def objects(self, name: str) -> list["_Fields"]:
        items = self.get(name, list)
        return [_Fields(self._path, f"{name}[{i}]", item) for i, item in enumerate(items)]

    def strings(self, name: str) -> tuple[str, ...]:
        items = self.get(name, list)
        for item in items:
            if not isinstance(item, str):
                raise self._error(name, f"expected strings, found {_shown(item)}")
        return tuple(items)

    def string_map(self, name: str) -> dict[str, str]:
        fields = self.object(name)
        return {key: fields.get(key, str) for key in fields._value}

    def manifest(self) -> Manifest:
        found = self.get("format", str)
        if found != FORMAT:
            raise self._error("format", f"expected {FORMAT!r}, found {found!r}", "wrong file?")
        version = self.get("version", int)
        if version != VERSION:
            raise self._error(
                "version",
                f"expected {VERSION}, found {version}",
                "it was written by another version of this program; use that one, or "
                + _COLLECT_AGAIN,
            )
        program = self.object("program")
        collector = self.object("collector")
        events: dict[str, EventFile] = {}
        for item in self.objects("events"):
            event = item.event()
            if event.name in events:
                raise item._error("name", f"the event {event.name!r} is there twice")
            events[event.name] = event
        if not events:
            raise self._error("events", "expected at least one event, found none")
        rates: dict[str, Rate] = {}
        for item in self.objects("rates"):
            rate = item.rate(events)
            if rate.name in rates:
                raise item._error("name", f"the rate {rate.name!r} is there twice")
            rates[rate.name] = rate
        return Manifest(
            self._path,
            Program(program.get("path", str), program.get("build_id", str)),
            Collector(
                collector.get("backend", str),
                collector.get("tool", str),
                collector.strings("command"),
                collector.strings("options"),
                collector.string_map("cache_geometry"),
                collector.count("runs") if "runs" in collector else 1,
                collector.get("within", str) if "within" in collector else "",
            ),
            tuple(events.values()),
            tuple(rates.values()),
            self.object("sources").file() if self._value.get("sources") else None,
            self.object("functions").file() if self._value.get("functions") else None,
            self.object("index").file() if self._value.get("index") else None,
        )

    def event(self) -> EventFile:
        kind = self.get("kind", str)
        if kind not in KINDS:
            raise self._error("kind", f"expected one of {', '.join(KINDS)}, found {kind!r}")
        total, located = self.count("total"), self.count("located")
        if located > total:
            raise self._error("located", f"expected at most the total {total}, found {located}")
        period = self.count("period")
        if period == 0:
            raise self._error("period", "expected 1 or more, found 0")
        return EventFile(
            name=self.name("name"),
            unit=self.get("unit", str),
            period=period,
            kind=kind,
            precise=self.get("precise", bool),
            total=total,
            located=located,
            outside=self.count("outside") if "outside" in self else 0,
            profile=self.file(),
            flattened=self.object("flattened").file() if self._value.get("flattened") else None,
        )

    def file(self) -> FileRecord:
        file = self.get("file", str)
        if not file or "\0" in file:
            raise self._error("file", f"expected the name of a file, found {_shown(file)}")
        return FileRecord(file, self.count("bytes"), self.get("xxh3", str))

    def rate(self, events: Mapping[str, EventFile]) -> Rate:
        rate = Rate(
            self.name("name"),
            self.get("numerator", str),
            self.get("denominator", str),
            self.get("prior_share", float),
            self.get("unit", str) if "unit" in self else "",
        )
        for role in ("numerator", "denominator"):
            name = getattr(rate, role)
            if name not in events:
                raise self._error(role, f"expected one of {', '.join(events)}, found {name!r}")
            if events[name].kind != "sum":
                raise self._error(
                    role, f"{name!r} is of kind {events[name].kind!r}, expected 'sum'"
                )
        if rate.prior_share < 0:
            raise self._error("prior_share", f"expected 0 or more, found {rate.prior_share}")
        return rate


_KIND_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a finite number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."
