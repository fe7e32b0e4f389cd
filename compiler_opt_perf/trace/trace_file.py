# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The file of a block trace, NAME.bbtrace; docs/formats.md describes it.

Of more than 400 lines, for writing, reading and checking have to agree on each byte.
"""

import json
import os
import struct
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import msgspec
import numpy as np
from absl import logging

from compiler_opt_perf.binary.elf import build_id
from compiler_opt_perf.run.files import open_input
from compiler_opt_perf.run.json_text import JsonError, decode
from compiler_opt_perf.trace import native
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers

T = TypeVar("T")

SUFFIX = ".bbtrace"
FORMAT = "compiler-opt-perf/block-trace"
VERSION = 1
BLOCKS_IN_RECORD = 1 << 16

DESCRIPTION, TABLE, BLOCKS, INDEX, WINDOWS, BRANCHES = range(1, 7)
_MAGIC = 0x184D2A5B
_HEAD = struct.Struct("<10I")
_TRAILER = struct.Struct("<IIQ")
_INDEX_ROW = struct.Struct("<QQII")
_ENDS = 1
# No record of ours is larger; a damaged head often says so.
_LARGEST = 1 << 31


@dataclass(frozen=True)
class Record:
    """The head of one record.

    Attributes:
      offset: of the head in the file, bytes.
      kind: one of the constants above, or one that later versions may add.
      stream: number of the stream.
      payload_bytes, raw_bytes: of its content, compressed and not.
      count: entries.
      ends: the stream ends here in order.
      pid, tid: process and thread.
    """

    offset: int
    kind: int
    stream: int
    payload_bytes: int
    raw_bytes: int
    count: int
    ends: bool
    pid: int
    tid: int


@dataclass(frozen=True)
class TraceDescription:
    """What a trace is of.

    Attributes:
      program: file name of the traced binary.
      build_id: of it, hexadecimal.
      command: the command line that ran.
      tool: what recorded it.
      fragments: the streams have gaps.
    """

    program: str
    build_id: str
    command: tuple[str, ...]
    tool: str
    fragments: bool = False

    def to_json(self, format_: str, table: BlockTable, more: Mapping[str, Any]) -> bytes:
        """The record's content."""
        fields = {
            "format": format_,
            "version": VERSION,
            "program": {"path": self.program, "build_id": self.build_id},
            "command": list(self.command),
            "tool": self.tool,
            "functions": len(table.names),
            "blocks": len(table),
            "fragments": self.fragments,
            **more,
        }
        return json.dumps(fields).encode()


def write_record(
    stream: BinaryIO,
    kind: int,
    raw: bytes,
    *,
    number: int = 0,
    count: int = 0,
    ends: bool = False,
    pid: int = 0,
    tid: int = 0,
) -> None:
    """Appends one record to the file."""
    payload = native.compress(raw)
    flags = _ENDS if ends else 0
    sizes = len(payload), len(raw)
    stream.write(
        _HEAD.pack(_MAGIC, _HEAD.size - 8, kind, number, *sizes, count, flags, pid, tid) + payload
    )


def write_start(
    stream: BinaryIO,
    description: TraceDescription,
    table: BlockTable,
    format_: str = FORMAT,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Writes what a file begins with: description and block table."""
    write_record(stream, DESCRIPTION, description.to_json(format_, table, more or {}))
    write_record(stream, TABLE, table.to_bytes())


def write_blocks(
    stream: BinaryIO,
    pieces: Iterable[Numbers],
    *,
    number: int,
    ends: bool,
    pid: int = 0,
    tid: int = 0,
) -> int:
    """Writes one stream, given in pieces of any size; returns how many numbers it has.

    Args:
      ends: the stream is whole.
    """
    total = 0
    last: Numbers | None = None

    def write(numbers: Numbers, final: bool) -> None:
        raw = native.encode(numbers)
        write_record(
            stream, BLOCKS, raw, number=number, count=len(numbers), ends=final, pid=pid, tid=tid
        )

    for numbers in _regular(pieces):
        if last is not None:
            write(last, False)
        last = numbers
        total += len(numbers)
    if last is not None:
        write(last, ends)
    return total


def _regular(pieces: Iterable[Numbers]) -> Iterator[Numbers]:
    """The same numbers in pieces of BLOCKS_IN_RECORD, the last one shorter."""
    held: list[Numbers] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= BLOCKS_IN_RECORD:
            joined = np.concatenate(held)
            whole = length - length % BLOCKS_IN_RECORD
            for start in range(0, whole, BLOCKS_IN_RECORD):
                yield joined[start : start + BLOCKS_IN_RECORD]
            held, length = [joined[whole:]], length - whole
    if length:
        yield np.concatenate(held)


def write_end(path: Path) -> None:
    """Ends the file at `path` with the index; a last record that is not whole is cut away."""
    with path.open("r+b") as stream:
        records, end = _scan(stream, path)
        stream.seek(end)
        stream.truncate()
        before: dict[int, int] = {}
        rows = []
        for record in records:
            if record.kind == BLOCKS:
                place = before.get(record.stream, 0)
                rows.append(_INDEX_ROW.pack(record.offset, place, record.stream, record.count))
                before[record.stream] = place + record.count
        write_record(stream, INDEX, struct.pack("<I", len(rows)) + b"".join(rows))
        stream.write(_TRAILER.pack(_MAGIC, 8, end))


def _scan(stream: BinaryIO, path: Path) -> tuple[list[Record], int]:
    """The whole records of a file, and where they end. Raises TraceError at a damaged head."""
    size = os.fstat(stream.fileno()).st_size
    records: list[Record] = []
    place = 0
    while place + _HEAD.size <= size:
        head = os.pread(stream.fileno(), _HEAD.size, place)
        magic, length, kind, number, payload, raw, count, flags, pid, tid = _HEAD.unpack(head)
        if magic != _MAGIC or length != _HEAD.size - 8 or max(payload, raw) > _LARGEST:
            if not records:
                raise TraceError(f"{path}: not a block trace, or its first bytes are damaged")
            raise TraceError(
                f"{path}: byte {place}: damaged: expected the head of a record; what comes before "
                "is readable: cut it off there, or record the trace anew"
            )
        if place + _HEAD.size + payload > size:
            break
        ends = bool(flags & _ENDS)
        records.append(Record(place, kind, number, payload, raw, count, ends, pid, tid))
        place += _HEAD.size + payload
        if kind == INDEX:
            break
    return records, place


class _Program(msgspec.Struct, frozen=True):
    path: str
    build_id: str


class _Fields(msgspec.Struct, frozen=True):
    """A description as it stands in the file, after format and version."""

    program: _Program
    command: tuple[str, ...]
    tool: str
    fragments: bool


@dataclass(frozen=True)
class Stream:
    """What one thread executed.

    Attributes:
      number: of the stream in this trace.
      pid, tid: of the thread.
      records: in order.
      ended: the thread came to its end; else it was killed, and its last blocks are missing.
    """

    number: int
    pid: int
    tid: int
    records: tuple[Record, ...]
    ended: bool

    def __len__(self) -> int:
        """How many blocks, and gaps, it has."""
        return sum(record.count for record in self.records)


class Trace:
    """A trace that is read.

    Attributes:
      path: the file.
      description: what it is of.
      table: the blocks.
      streams: one a thread, by number.
      complete: the recording was ended in order; else it was cut off, and the file ends after the
        last whole record.
      records: all records.
    """

    def __init__(self, path: Path, stream: BinaryIO, format_: str):
        self.path = path
        self._stream = stream
        # With the trace, or when it turns out to be none.
        weakref.finalize(self, stream.close)
        self._format = format_
        self.records, end = _scan(stream, path)
        fields = self.read_description(_Fields)
        self.description = TraceDescription(
            fields.program.path,
            fields.program.build_id,
            fields.command,
            fields.tool,
            fields.fragments,
        )
        if len(self.records) < 2 or self.records[1].kind != TABLE:
            raise TraceError(f"{path}: cut off before the end of the block table: record it anew")
        try:
            self.table = BlockTable.from_bytes(self.content(self.records[1]))
        except TraceError as error:
            raise TraceError(f"{path}: {error}; record it anew") from error
        self.complete = self._has_trailer(end)
        self.streams: dict[int, Stream] = {}
        grouped: dict[int, list[Record]] = {}
        for record in self.records:
            if record.kind == BLOCKS:
                grouped.setdefault(record.stream, []).append(record)
        for number, records in sorted(grouped.items()):
            first, last = records[0], records[-1]
            self.streams[number] = Stream(number, first.pid, first.tid, tuple(records), last.ends)

    @property
    def total(self) -> int:
        """How many blocks, and gaps, all streams have."""
        return sum(len(stream) for stream in self.streams.values())

    @classmethod
    def load(cls, path: Path, *, quiet: bool = False, format_: str = FORMAT) -> Self:
        """Opens a trace, or a file of another format that has description and table, too.

        Logs a warning when it was cut off, unless `quiet`.

        Raises:
          TraceError: it cannot be read, is no trace, of another version, or damaged.
        """
        try:
            trace = cls(path, open_input(path), format_)
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
        if not quiet:
            trace.warn_if_cut_off()
        return trace

    def read_description(self, kind: type[T]) -> T:
        """The fields that `kind` has of the description. Raises TraceError."""
        if not self.records or self.records[0].kind != DESCRIPTION:
            raise TraceError(f"{self.path}: not a block trace (cop trace record writes them)")
        try:
            return decode(
                self.content(self.records[0]),
                kind,
                f"{self.path}: description",
                (self._format, VERSION),
            )
        except JsonError as error:
            raise TraceError(f"{error}; make the file anew") from error

    def _has_trailer(self, end: int) -> bool:
        index = self.records[-1]
        if index.kind != INDEX:
            return False
        trailer = os.pread(self._stream.fileno(), _TRAILER.size, end)
        return trailer == _TRAILER.pack(_MAGIC, 8, index.offset)

    def warn_if_cut_off(self) -> None:
        """Says so when the trace is not whole."""
        if not self.complete:
            logging.warning(
                "%s: cut off: the recording was killed, or the file truncated; read up to the last "
                "whole record",
                self.path,
            )
        open_ended = [stream for stream in self.streams.values() if not stream.ended]
        if open_ended and self.complete:
            logging.warning(
                "%s: %d of %d threads did not come to their end (killed); up to %d of the last "
                "blocks of each are missing",
                self.path,
                len(open_ended),
                len(self.streams),
                BLOCKS_IN_RECORD,
            )

    def content(self, record: Record) -> bytes:
        """A record's content, decompressed. Raises TraceError when it is damaged."""
        try:
            return native.decompress(self.payload(record), record.raw_bytes)
        except TraceError as error:
            raise self._damaged(record, error) from error

    def payload(self, record: Record) -> bytes:
        """A record's content as it is in the file."""
        return os.pread(self._stream.fileno(), record.payload_bytes, record.offset + _HEAD.size)

    def numbers(self, record: Record) -> Numbers:
        """The block numbers of a record [count]; number B is a gap.

        Raises:
          TraceError: the record is damaged.
        """
        try:
            return native.decode(
                self.payload(record), record.raw_bytes, record.count, len(self.table)
            )
        except TraceError as error:
            raise self._damaged(record, error) from error

    def _damaged(self, record: Record, error: TraceError) -> TraceError:
        return TraceError(
            f"{self.path}: byte {record.offset}: {error}; copy or record the file anew"
        )

    def pieces(self, stream: Stream) -> Iterator[Numbers]:
        """The block numbers of a stream, a record at a time. Raises TraceError."""
        for record in stream.records:
            yield self.numbers(record)

    def verify_binary(self, binary: Path) -> None:
        """Checks that the trace is of this very binary.

        Raises:
          TraceError: it is of another build.
          PmuError: the binary cannot be read.
        """
        found = build_id(binary)
        if found != self.description.build_id:
            raise TraceError(
                f"{self.path}: of {self.description.program} with build-id "
                f"{self.description.build_id}, but {binary} has {found}: block numbers mean "
                "nothing in another build; record a trace of this one"
            )
