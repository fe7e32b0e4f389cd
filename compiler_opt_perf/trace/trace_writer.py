# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes block traces; docs/reference/formats.md describes each byte."""

import contextlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from compiler_opt_perf.run.files import atomic_write
from compiler_opt_perf.run.leb128 import write_leb128s
from compiler_opt_perf.trace import native
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import (
    BLOCKS,
    BLOCKS_IN_RECORD,
    CODE,
    DESCRIPTION,
    ENDS,
    FORMAT,
    HEAD,
    INDEX,
    INDEX_ROW,
    MAGIC,
    SUFFIX,
    TABLE,
    TRAILER,
    TraceDescription,
    scan,
)


def require_suffix(output: Path) -> None:
    """Checks the file name of a new trace. Raises TraceError."""
    if output.suffix != SUFFIX:
        raise TraceError(f"{output}: the name of a block trace must end with {SUFFIX}")


@contextlib.contextmanager
def new_trace(
    output: Path,
    description: TraceDescription,
    table: BlockTable,
    format_: str = FORMAT,
    more: Mapping[str, Any] | None = None,
) -> Iterator[BinaryIO]:
    """Yields the stream of a new file after its block table; a clean exit adds the index.

    Args:
      more: further fields of the description.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    with atomic_write(output) as temporary:
        with temporary.open("wb") as stream:
            write_start(stream, description, table, format_, more)
            yield stream
        write_end(temporary)


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
    """Appends one compressed record to the file."""
    payload = native.compress(raw)
    flags = ENDS if ends else 0
    sizes = len(payload), len(raw)
    stream.write(
        HEAD.pack(MAGIC, HEAD.size - 8, kind, number, *sizes, count, flags, pid, tid) + payload
    )


def write_start(
    stream: BinaryIO,
    description: TraceDescription,
    table: BlockTable,
    format_: str = FORMAT,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Writes the beginning of a file: description and block table."""
    write_record(stream, DESCRIPTION, description.to_json(format_, table, more or {}))
    write_record(stream, TABLE, table.to_bytes())


def write_code(stream: BinaryIO, numbers: Sequence[int], code: Sequence[bytes]) -> None:
    """Writes the machine code of the blocks with these numbers, which ascend."""
    differences = np.diff(np.array(numbers, np.int64), prepend=0).tolist()
    raw = write_leb128s(differences) + b"".join(code)
    write_record(stream, CODE, raw, count=len(numbers))


def write_blocks(
    stream: BinaryIO,
    pieces: Iterable[Numbers],
    *,
    number: int,
    ends: bool,
    pid: int = 0,
    tid: int = 0,
) -> int:
    """Writes one stream from pieces of any size; returns its length in block numbers.

    Args:
      number: the stream's number.
      ends: whether the stream is complete.
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
    """Yields the same numbers in pieces of BLOCKS_IN_RECORD; the last one may be shorter."""
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
    """Ends the file at `path` with the index, after cutting off an incomplete last record."""
    with path.open("r+b") as stream:
        records, end = scan(stream, path)
        stream.seek(end)
        stream.truncate()
        before: dict[int, int] = {}
        rows = []
        for record in records:
            if record.kind == BLOCKS:
                place = before.get(record.stream, 0)
                rows.append(INDEX_ROW.pack(record.offset, place, record.stream, record.count))
                before[record.stream] = place + record.count
        write_record(stream, INDEX, struct.pack("<I", len(rows)) + b"".join(rows))
        stream.write(TRAILER.pack(MAGIC, 8, end))
