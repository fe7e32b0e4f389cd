# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the file of a block trace, NAME.bbtrace; docs/reference/formats.md describes each byte."""

import json
import os
import struct
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import msgspec
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

DESCRIPTION, TABLE, BLOCKS, INDEX, WINDOWS, BRANCHES, ACCESSES = range(1, 8)
SAMPLE_ACCESSES, SAMPLE_BRANCHES, CODE, SAMPLE_FETCHES = 8, 9, 10, 11
MAGIC = 0x184D2A5B
HEAD = struct.Struct("<10I")
TRAILER = struct.Struct("<IIQ")
INDEX_ROW = struct.Struct("<QQII")
ENDS = 1
# Larger sizes show that the head of a record is damaged.
_LARGEST = 1 << 31


@dataclass(frozen=True)
class Record:
    """The head of one record.

    Attributes:
      offset: place of the head in the file, bytes.
      kind: one of the constants above; later versions may add others.
      stream: number of the stream.
      payload_bytes, raw_bytes: size of its content, compressed and uncompressed.
      count: number of entries.
      ends: whether the stream ends here regularly.
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
    """The run that a trace was recorded from.

    Attributes:
      program: file name of the traced binary.
      build_id: build-id of the binary, hexadecimal.
      command: the command line that ran.
      tool: the tool that recorded the trace.
      fragments: whether the streams have gaps.
    """

    program: str
    build_id: str
    command: tuple[str, ...]
    tool: str
    fragments: bool = False

    def to_json(self, format_: str, table: BlockTable, more: Mapping[str, Any]) -> bytes:
        """Returns the content of the description record."""
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


def scan(stream: BinaryIO, path: Path) -> tuple[list[Record], int]:
    """Returns the complete records and their end. Raises TraceError: a head is damaged."""
    size = os.fstat(stream.fileno()).st_size
    records: list[Record] = []
    place = 0
    while place + HEAD.size <= size:
        head = os.pread(stream.fileno(), HEAD.size, place)
        magic, length, kind, number, payload, raw, count, flags, pid, tid = HEAD.unpack(head)
        if magic != MAGIC or length != HEAD.size - 8 or max(payload, raw) > _LARGEST:
            if not records:
                raise TraceError(f"{path}: not a block trace, or its first bytes are damaged")
            raise TraceError(
                f"{path}: byte {place}: damaged: expected the head of a record; all before is "
                "readable: truncate the file there, or record the trace again"
            )
        if place + HEAD.size + payload > size:
            break
        ends = bool(flags & ENDS)
        records.append(Record(place, kind, number, payload, raw, count, ends, pid, tid))
        place += HEAD.size + payload
        if kind == INDEX:
            break
    return records, place


class _Program(msgspec.Struct, frozen=True):
    path: str
    build_id: str


class _Fields(msgspec.Struct, frozen=True):
    """The description's fields in the file, without format and version."""

    program: _Program
    command: tuple[str, ...]
    tool: str
    fragments: bool


@dataclass(frozen=True)
class Stream:
    """The blocks that one thread executed.

    Attributes:
      number: number of the stream in this trace.
      pid, tid: process and thread.
      records: its records, in order.
      ended: whether the thread ended regularly; a killed thread's last blocks are missing.
    """

    number: int
    pid: int
    tid: int
    records: tuple[Record, ...]
    ended: bool

    def __len__(self) -> int:
        """Number of blocks and gaps."""
        return sum(record.count for record in self.records)


class Trace:
    """A trace opened for reading.

    Attributes:
      path: the file.
      description: the recorded run.
      table: the machine basic blocks of the binary.
      streams: streams by number, one per thread.
      complete: whether the recording ended regularly; else the file was cut off, and ends after
        the last complete record.
      records: all records.
    """

    def __init__(self, path: Path, stream: BinaryIO, format_: str):
        self.path = path
        self._stream = stream
        # Closes the file with the trace, also when this constructor raises.
        weakref.finalize(self, stream.close)
        self._format = format_
        self.records, end = scan(stream, path)
        fields = self.read_description(_Fields)
        self.description = TraceDescription(
            fields.program.path,
            fields.program.build_id,
            fields.command,
            fields.tool,
            fields.fragments,
        )
        if len(self.records) < 2 or self.records[1].kind != TABLE:
            raise TraceError(f"{path}: cut off before the end of the block table: record it again")
        try:
            self.table = BlockTable.from_bytes(self.content(self.records[1]))
        except TraceError as error:
            raise TraceError(f"{path}: {error}; record it again") from error
        self.complete = self._has_trailer(end)
        if self.complete and self._listed() != [r.offset for r in self.records if r.kind == BLOCKS]:
            raise TraceError(
                f"{path}: byte {self.records[-1].offset}: the index lists other records of blocks "
                "than the file has; copy or record the file again"
            )
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
        """Number of blocks and gaps in all streams."""
        return sum(len(stream) for stream in self.streams.values())

    @classmethod
    def load(cls, path: Path, *, quiet: bool = False, format_: str = FORMAT) -> Self:
        """Opens a trace, or a file of another format that begins like one.

        Logs a warning for a file that was cut off, unless `quiet`.

        Raises:
          TraceError: the file cannot be read, is damaged, no trace, or of another version.
        """
        try:
            trace = cls(path, open_input(path), format_)
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
        if not quiet:
            trace.warn_if_cut_off()
        return trace

    def read_description(self, kind: type[T]) -> T:
        """Reads the fields of type `kind` from the description. Raises TraceError."""
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
            raise TraceError(f"{error}; write the file again") from error

    def _has_trailer(self, end: int) -> bool:
        index = self.records[-1]
        if index.kind != INDEX:
            return False
        trailer = os.pread(self._stream.fileno(), TRAILER.size, end)
        return trailer == TRAILER.pack(MAGIC, 8, index.offset)

    def _listed(self) -> list[int]:
        """Places of the records of blocks by the index. Raises TraceError: it is damaged."""
        index = self.records[-1]
        try:
            return [row[0] for row in INDEX_ROW.iter_unpack(self.content(index)[4:])]
        except struct.error as error:
            raise self._damaged(index, TraceError("the index is malformed")) from error

    def warn_if_cut_off(self) -> None:
        """Logs a warning for each reason why the trace is incomplete."""
        if not self.complete:
            logging.warning(
                "%s: cut off: the recording was killed, or the file truncated; reading up to the "
                "last complete record",
                self.path,
            )
        open_ended = [stream for stream in self.streams.values() if not stream.ended]
        if open_ended and self.complete:
            logging.warning(
                "%s: %d of %d threads were killed; up to %d of the last blocks of each are missing",
                self.path,
                len(open_ended),
                len(self.streams),
                BLOCKS_IN_RECORD,
            )

    def content(self, record: Record) -> bytes:
        """Returns the decompressed content of a record. Raises TraceError when it is damaged."""
        try:
            return native.decompress(self.payload(record), record.raw_bytes)
        except TraceError as error:
            raise self._damaged(record, error) from error

    def payload(self, record: Record) -> bytes:
        """Returns the compressed content of a record."""
        return os.pread(self._stream.fileno(), record.payload_bytes, record.offset + HEAD.size)

    def numbers(self, record: Record) -> Numbers:
        """Returns the block numbers of a record, uint32 [count]; number B marks a gap.

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
            f"{self.path}: byte {record.offset}: {error}; copy or record the file again"
        )

    def pieces(self, stream: Stream) -> Iterator[Numbers]:
        """Yields the block numbers of a stream, one record at a time. Raises TraceError."""
        for record in stream.records:
            yield self.numbers(record)

    def part(self, stream: Stream, first: int, end: int) -> Iterator[Numbers]:
        """Yields the numbers of a stream from `first` to before `end`; reads no other records."""
        place = 0
        for record in stream.records:
            begins, place = place, place + record.count
            if place > first and begins < end:
                yield self.numbers(record)[max(0, first - begins) : end - begins]

    def stream(self, number: int) -> Stream:
        """Returns the stream with that number. Raises TraceError when there is none."""
        if number not in self.streams:
            raise TraceError(
                f"{self.path}: has no stream {number}; there are "
                f"{', '.join(map(str, self.streams))}"
            )
        return self.streams[number]

    def verify_binary(self, binary: Path) -> None:
        """Checks that the trace was recorded from this build of the binary.

        Raises:
          TraceError: the trace belongs to another build.
          BinaryError: the binary cannot be read or has no build-id.
        """
        actual = build_id(binary)
        if actual != self.description.build_id:
            raise TraceError(
                f"{self.path}: a trace of {self.description.program} with build-id "
                f"{self.description.build_id}, but {binary} has {actual}: block numbers mean "
                "nothing in another build; record a trace of this build"
            )
