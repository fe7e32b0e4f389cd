# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gematria's data sets of blocks: their code, cycles and annotations of instructions.

A file is TensorFlow's kind of records, each a BasicBlockWithThroughputProto in the wire format of
protocol buffers (docs/formats.md). Both are read and written here: there are a few fields, and
TensorFlow takes seconds to load.
"""

import math
import statistics
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import iced_x86
from absl import logging

from compiler_opt_perf.cost.block_file import BlockFileError, MeasuredBlocks, Row
from compiler_opt_perf.execution.files import atomic_write, read_input
from compiler_opt_perf.execution.leb128 import read_leb128

#: Names of annotations that are read and written: those of a file of ours.
ANNOTATIONS = ("l1_miss", "l2_miss", "l3_miss", "mispredict", "executions")
#: Why a block without a throughput has no cycles.
NO_THROUGHPUT = "no throughput"
_SOURCE = "cop cost measure-blocks"
# Numbers of fields: of a block with throughputs, of a block, of an instruction's machine code, of a
# throughput, of an annotation. Annotations are read whatever number they have in an instruction,
# beyond its seven others, for no other field of its messages has a text and a number.
_BLOCK, _THROUGHPUT = 1, 2
_MACHINE, _CANONICAL = 1, 2
_ADDRESS, _CODE = 1, 3
_SOURCE_FIELD, _CYCLES = 1, 2
_NAME, _VALUE = 1, 2
_FIRST_ANNOTATION = 8
# Wire types.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_MOST = 1e12


class _Field(NamedTuple):
    number: int
    kind: int
    value: int | bytes


def is_gematria(head: bytes) -> bool:
    """Whether a file that begins with these bytes, 8 or more, is one of records, not text."""
    return len(head) >= 8 and b"\0" in head[:8]


def read_gematria(path: Path) -> MeasuredBlocks:
    """Reads a data set; of a block with several throughputs, the first one.

    Annotations of other names than ANNOTATIONS, such as counts of samples, are left out.

    Raises:
      BlockFileError: it cannot be read or is damaged; the message names the record.
    """
    rows = []
    others: set[str] = set()
    for number, record in enumerate(_records(path)):
        try:
            rows.append(_row(record, others))
        except (ValueError, IndexError, struct.error) as error:
            raise BlockFileError(
                f"{path}: record {number}: {error}; expected gematria's "
                "BasicBlockWithThroughputProto, with the machine code of each instruction"
            ) from error
    if not rows:
        raise BlockFileError(f"{path}: is empty; expected measured blocks")
    if others:
        logging.warning("%s: annotations that are not used: %s", path, ", ".join(sorted(others)))
    return MeasuredBlocks(None, 0.0, rows)


def write_gematria(path: Path, blocks: MeasuredBlocks) -> None:
    """Writes those with cycles. Raises FileWriteError."""
    source = f"{_SOURCE}: {blocks.cpu.mcpu}" if blocks.cpu else _SOURCE
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        for row in blocks.measured():
            content = _message(row, source)
            length = struct.pack("<Q", len(content))
            stream.write(length + checksum(length) + content + checksum(content))


def checksum(content: bytes) -> bytes:
    """What stands behind a part of a record: its masked CRC-32C."""
    # TensorBoard's has no need of TensorFlow, but is not loaded by those who read no such file.
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    return struct.pack("<I", masked_crc32c(content))


def _records(path: Path) -> Iterator[bytes]:
    try:
        content = read_input(path)
    except OSError as error:
        raise BlockFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    place = 0
    while place < len(content):
        head = content[place : place + 12]
        length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else len(content)
        start, end = place + 12, place + 12 + length
        if end + 4 > len(content):
            raise BlockFileError(f"{path}: byte {place}: the record is cut off; copy it again")
        record = content[start:end]
        if head[8:] != checksum(head[:8]) or content[end : end + 4] != checksum(record):
            raise BlockFileError(
                f"{path}: byte {place}: the record differs from its checksum; copy it again"
            )
        yield record
        place = end + 4


def _row(record: bytes, others: set[str]) -> Row:
    """The block of a record. Raises ValueError, IndexError, struct.error where it is damaged."""
    machine: list[bytes] = []
    address: int | None = None
    annotations: list[dict[str, float]] = []
    for block in _messages(record, _BLOCK):
        for instruction in _messages(block, _MACHINE):
            fields = {one.number: one.value for one in _fields(instruction)}
            code = fields.get(_CODE, b"")
            if not code or not isinstance(code, bytes):
                raise ValueError(f"instruction {len(machine)} has no machine code")
            if not machine and isinstance(start := fields.get(_ADDRESS, 0), int) and start:
                address = start
            machine.append(code)
        annotations += [_annotations(one) for one in _messages(block, _CANONICAL)]
    if not machine:
        raise ValueError("a block without instructions")
    if annotations and len(annotations) != len(machine):
        raise ValueError(
            f"{len(annotations)} canonicalized instructions of {len(machine)} with machine code"
        )
    others.update(name for one in annotations for name in one if name not in ANNOTATIONS)
    cycles = _cycles(record)
    pmu = {
        name: tuple(one.get(name) for one in annotations)
        for name in ANNOTATIONS
        if any(name in one for one in annotations)
    }
    return Row(
        code=b"".join(machine).hex(),
        cycles=cycles,
        dropped="" if cycles else NO_THROUGHPUT,
        address=address,
        pmu=pmu,
    )


def _cycles(record: bytes) -> float | None:
    """The median of the values of the first throughput; None where there is none."""
    for throughput in _messages(record, _THROUGHPUT):
        values: list[float] = []
        for one in _fields(throughput):
            if one.number == _CYCLES and isinstance(one.value, bytes):
                values += [value for (value,) in struct.iter_unpack("<d", one.value)]
        if values:
            found = statistics.median(values)
            if not 0 < found < _MOST:
                raise ValueError(f"a throughput of {found} cycles")
            return found
    return None


def _annotations(instruction: bytes) -> dict[str, float]:
    found = {}
    for one in _fields(instruction):
        if one.number >= _FIRST_ANNOTATION and one.kind == _BYTES:
            assert isinstance(one.value, bytes)
            parts = {field.number: field for field in _fields(one.value)}
            name, value = parts.get(_NAME), parts.get(_VALUE)
            if name is None or name.kind != _BYTES or (value and value.kind != _EIGHT):
                continue
            assert isinstance(name.value, bytes)
            # A value of 0 is not written.
            number = struct.unpack("<d", bytes(value.value))[0] if value else 0.0
            if not 0 <= number < _MOST:
                raise ValueError(f"an annotation of {number}")
            found[name.value.decode()] = number
    return found


def _fields(message: bytes) -> Iterator[_Field]:
    """The fields of a message, in order; of numbers of eight bytes, the bytes."""
    place = 0
    while place < len(message):
        key, place = read_leb128(message, place)
        kind = key & 7
        if kind == _VARINT:
            number, place = read_leb128(message, place)
            yield _Field(key >> 3, kind, number)
            continue
        if kind == _BYTES:
            length, place = read_leb128(message, place)
        elif kind in (_EIGHT, _FOUR):
            length = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"a field of the kind {kind}")
        if place + length > len(message):
            raise ValueError("a field that is cut off")
        yield _Field(key >> 3, kind, message[place : place + length])
        place += length


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    for one in _fields(message):
        if one.number == number and one.kind == _BYTES:
            assert isinstance(one.value, bytes)
            yield one.value


def _message(row: Row, source: str) -> bytes:
    """The record of a block."""
    code = bytes.fromhex(row.code)
    base = row.address or 0
    block = b""
    known: list[bytes] = []
    for place, one in enumerate(iced_x86.Decoder(64, code)):
        parts = _varint_field(_ADDRESS, base + one.ip) + _field(_CODE, code[one.ip : one.next_ip])
        block += _field(_MACHINE, parts)
        known.append(_annotated((name, values[place]) for name, values in row.pmu.items()))
    if any(known):
        block += b"".join(_field(_CANONICAL, one) for one in known)
    assert row.cycles is not None and math.isfinite(row.cycles)
    cycles = struct.pack("<d", row.cycles)
    throughput = _field(_SOURCE_FIELD, source.encode()) + _field(_CYCLES, cycles)
    return _field(_BLOCK, block) + _field(_THROUGHPUT, throughput)


def _annotated(known: Iterable[tuple[str, float | None]]) -> bytes:
    return b"".join(
        _field(
            _FIRST_ANNOTATION,
            _field(_NAME, name.encode()) + bytes([_VALUE << 3 | _EIGHT]) + struct.pack("<d", value),
        )
        for name, value in known
        if value is not None
    )


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _varint(len(content)) + content


def _varint_field(number: int, value: int) -> bytes:
    return bytes([number << 3 | _VARINT]) + _varint(value) if value else b""


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
