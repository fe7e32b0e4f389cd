# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The manifest of a PMU profile: its program, events, files and rates."""

import dataclasses
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, cast

import msgspec
import xxhash

from compiler_opt_perf.binary.elf import build_id
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import KINDS, Combination, Rate
from compiler_opt_perf.profile.function_table import FunctionTable
from compiler_opt_perf.run.files import read_input, write_text
from compiler_opt_perf.run.json_text import (
    Count,
    FieldError,
    FileName,
    JsonError,
    decode,
    shown,
)

FORMAT = "compiler-opt-perf/pmu-profile"
VERSION = 4
SUFFIX = ".pmu.json"

_COLLECT_AGAIN = "collect the profile again"

_LONGEST_NAME = 100


@dataclass(frozen=True)
class ProfiledBinary:
    """The profiled binary: its name, and its build-id in hexadecimal digits."""

    path: str
    build_id: str


@dataclass(frozen=True)
class Collector:
    """How the profile was made.

    Attributes:
      backend: "callgrind" or "perf".
      tool: name and version of the program that counted.
      command: the profiled command line.
      options: the tool's options.
      cache_geometry: name of a simulated cache (I1, D1, LL) -> "size,ways,line" in bytes; empty
        without a simulation.
      runs: number of runs that were added up; `command` is the first one's.
      within: the function to whose calls, callees included, counting was limited; empty for whole
        runs.
    """

    backend: str
    tool: str
    command: tuple[str, ...]
    options: tuple[str, ...]
    cache_geometry: Mapping[str, str]
    runs: Count = 1
    within: str = ""

    @property
    def has_all_executions(self) -> bool:
        """Whether a function without any did not run: nothing is sampled, or left out."""
        return self.backend == "callgrind" and not self.within

    @property
    def scope(self) -> str:
        """The counted part of the runs, in words."""
        return f"calls of {self.within}" if self.within else "whole runs"


@dataclass(frozen=True)
class FileRecord:
    """Name, size and checksum of a file of the profile.

    Attributes:
      file: its path, relative to the manifest.
      bytes: its size.
      xxh3: its checksum, XXH3 of 64 bits, as 16 lower-case hexadecimal digits. It finds damage at
        a tenth of the cost of SHA-256.
    """

    file: FileName
    bytes: Count
    xxh3: str

    @classmethod
    def of(cls, path: Path, name: str | None = None) -> "FileRecord":
        """Records the file at `path`, which will be renamed to `name`. Raises OSError."""
        data = path.read_bytes()
        return cls(name or path.name, len(data), xxhash.xxh3_64_hexdigest(data))


UNWRITTEN = FileRecord("", 0, "")


@dataclass(frozen=True)
class EventFile:
    """One event's sample profile.

    Attributes:
      name: the event's name.
      unit: the unit of counts.
      period: occurrences that one sample stands for; counts are already multiplied by it.
      kind: how the counts of one line's instructions combine, "sum" or "max".
      precise: whether counts belong to exactly the instruction that caused them.
      total: counts in the profiled binary.
      located: counts with a source location, which the file holds.
      outside: counts in other objects (shared libraries, the loader), which no file holds.
      profile: the sample profile with inline stacks; `UNWRITTEN` until it is written.
      flattened: the sample profile summed over inline stacks; None if there is none.
    """

    name: str
    unit: str
    period: int
    kind: Combination
    precise: bool
    total: int
    located: int
    outside: int = 0
    profile: FileRecord = UNWRITTEN
    flattened: FileRecord | None = None

    @property
    def everywhere(self) -> int:
        """Counts in the profiled binary and in other objects."""
        return self.total + self.outside


@dataclass(frozen=True)
class Manifest:
    """A PMU profile, as described in docs/reference/formats.md.

    Attributes:
      path: the manifest's file.
      program: the profiled binary.
      collector: how the profile was made.
      events: the sample profiles.
      rates: ratios of two events that the compiler can look up.
      sources: JSON table for reports, linkage name -> [file, first line]; None if there is none.
      functions: table of all functions of the binary (`FunctionTable`); None if there is none.
    """

    path: Path = field(compare=False)
    program: ProfiledBinary
    collector: Collector
    events: tuple[EventFile, ...]
    rates: tuple[Rate, ...]
    sources: FileRecord | None = None
    functions: FileRecord | None = None

    @classmethod
    def load(cls, path: Path) -> "Manifest":
        """Reads a manifest, and checks size and checksum of its files.

        Raises:
          PmuError: a file is missing, truncated, changed, or not in this format. The message names
            the file, and the line or field.
        """
        try:
            document = decode(read_input(path), _Document, path, (FORMAT, VERSION))
            document.check(path)
        except OSError as error:
            raise PmuError(f"{path}: cannot be read: {error.strerror}") from error
        except JsonError as error:
            is_named_so = path.name.endswith(SUFFIX)
            remedy = _COLLECT_AGAIN if is_named_so else f"name the manifest, NAME{SUFFIX}"
            raise PmuError(f"{error}; {remedy}") from error
        manifest = cls(
            path,
            document.program,
            document.collector,
            tuple(event.event() for event in document.events),
            document.rates,
            document.sources,
            document.functions,
        )
        manifest.verify_files()
        return manifest

    def to_json(self) -> str:
        """The text of the manifest's file."""
        document = dataclasses.asdict(self)
        del document["path"]
        # In the file, the fields of `profile` are fields of the event.
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

    @property
    def instructions_elsewhere(self) -> int:
        """Instructions in other objects; 0 if instructions were not counted."""
        return sum(event.outside for event in self.events if event.name == "instructions")

    def file(self, event: EventFile) -> Path:
        """The path of `event`'s sample profile."""
        return self.path.parent / event.profile.file

    def files(self) -> list[tuple[str, FileRecord]]:
        """A description of each file, for messages, and its record."""
        files = []
        for event in self.events:
            files.append((f"event {event.name!r}", event.profile))
            if event.flattened is not None:
                files.append((f"event {event.name!r}, flattened", event.flattened))
        if self.sources is not None:
            files.append(("sources", self.sources))
        if self.functions is not None:
            files.append(("functions", self.functions))
        return files

    def read_functions(self) -> FunctionTable | None:
        """The binary's functions; None if the profile has no such table. Raises PmuError."""
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
            # Checked before reading, because a pipe has no end and another file may be huge.
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


class _Event(msgspec.Struct, frozen=True):
    """An event as in the file, with the fields of `EventFile.profile` as its own."""

    name: str
    unit: str
    period: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    kind: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(KINDS)})$")]
    precise: bool
    total: Count
    located: Count
    file: FileName
    bytes: Count
    xxh3: str
    outside: Count = 0
    flattened: FileRecord | None = None

    def __post_init__(self) -> None:
        if self.located > self.total:
            raise FieldError(
                "located", f"expected at most the total {self.total}, found {self.located}"
            )

    def event(self) -> EventFile:
        return EventFile(
            name=self.name,
            unit=self.unit,
            period=self.period,
            kind=cast(Combination, self.kind),
            precise=self.precise,
            total=self.total,
            located=self.located,
            outside=self.outside,
            profile=FileRecord(self.file, self.bytes, self.xxh3),
            flattened=self.flattened,
        )


class _Document(msgspec.Struct, frozen=True):
    """A manifest as in the file, without format and version."""

    program: ProfiledBinary
    collector: Collector
    events: Annotated[tuple[_Event, ...], msgspec.Meta(min_length=1)]
    rates: tuple[Rate, ...]
    sources: FileRecord | None = None
    functions: FileRecord | None = None

    def check(self, path: Path) -> None:
        """Raises JsonError: a name is invalid or repeated, or a rate has an unfit event."""
        _require_names(f"{path}: $.events", [event.name for event in self.events])
        _require_names(f"{path}: $.rates", [rate.name for rate in self.rates])
        kinds = {event.name: event.kind for event in self.events}
        for number, rate in enumerate(self.rates):
            for role, name in (("numerator", rate.numerator), ("denominator", rate.denominator)):
                place = f"{path}: $.rates[{number}].{role}"
                if name not in kinds:
                    raise JsonError(
                        f"{place}: expected one of {', '.join(kinds)}, found {shown(name)}"
                    )
                if kinds[name] != "sum":
                    raise JsonError(f"{place}: {name!r} is of kind {kinds[name]!r}, expected 'sum'")


def _require_names(table: str, names: Sequence[str]) -> None:
    """Raises JsonError: a name cannot be part of a file name, or is repeated."""
    for number, name in enumerate(names):
        place = f"{table}[{number}].name"
        if not name or not name.isprintable() or "/" in name or len(name) > _LONGEST_NAME:
            raise JsonError(
                f"{place}: expected a name of printable characters without '/', found {shown(name)}"
            )
        if name in names[:number]:
            raise JsonError(f"{place}: {name!r} is repeated")
