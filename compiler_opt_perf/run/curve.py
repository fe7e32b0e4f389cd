# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the curve of a training, one point a step, as JSON lines and for TensorBoard.

Both files are written anew from all points, so that an interruption changes nothing in them.
"""

import contextlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_opt_perf.run.files import atomic_write, read_input, write_text

#: TensorBoard looks for files of such a name.
EVENTS = "events.out.tfevents.0"
# The fields of a point's step and time.
_STEP = "generation"
_SECONDS = "elapsed_s"


def curve_values(point: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a point, without its step and time; counts are int."""
    return {
        name: value
        for name, value in point.items()
        if name not in (_STEP, _SECONDS)
        and type(value) in (int, float)
        # Excludes NaN, and integers that are too large for a float.
        and abs(value) < 2.0**64
    }


def write_curve(path: Path, points: Sequence[Mapping[str, Any]]) -> None:
    """Writes `path` as JSON lines, and a file for TensorBoard beside it. Raises FileWriteError."""
    rows = [(n, float(p.get(_SECONDS, 0.0)), curve_values(p)) for n, p in enumerate(points)]
    write_scalars(path.parent, rows)
    # Written last: if this file is complete, the other one is, too.
    write_text(path, curve_text(points))


def curve_text(points: Sequence[Mapping[str, Any]]) -> str:
    """The points as JSON lines."""
    return "".join(json.dumps(point) + "\n" for point in points)


def write_scalars(folder: Path, rows: Sequence[tuple[int, float, Mapping[str, float]]]) -> None:
    """Writes the event file in `folder`, which `tensorboard --logdir` shows.

    Rows that continue the file are appended to it. A running TensorBoard then shows each row once.

    Args:
      rows: step, seconds since the training began, and values by name.

    Raises:
      FileWriteError: the disk is full.
    """
    path, content = folder / EVENTS, _events(rows)
    before = b""
    with contextlib.suppress(OSError):
        before = read_input(path)
    if before == content:
        return
    if before and content.startswith(before):
        with contextlib.suppress(OSError), path.open("ab") as stream:
            stream.write(content[len(before) :])
            return
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _events(rows: Sequence[tuple[int, float, Mapping[str, float]]]) -> bytes:
    """An event file: the messages of tensorflow/core/util/event.proto, one a record."""
    version = _bytes_field(3, b"brain.Event:2")
    records = [_record(version)]
    for step, seconds, values in rows:
        # Event.wall_time, Event.step and Event.summary; Protobuf leaves out what is 0.
        event = struct.pack("<Bd", 1 << 3 | 1, seconds) if seconds else b""
        event += bytes([2 << 3]) + _varint(step) if step else b""
        scalars = b"".join(
            # Summary.value, whose fields are tag and simple_value.
            _bytes_field(1, _bytes_field(1, name.encode()) + struct.pack("<Bf", 2 << 3 | 5, one))
            for name, one in values.items()
        )
        records.append(_record(event + _bytes_field(5, scalars)))
    return b"".join(records)


def _record(message: bytes) -> bytes:
    """A record of a TFRecord file: length and message, each with its checksum."""
    length = struct.pack("<Q", len(message))
    return b"".join((length, _checksum(length), message, _checksum(message)))


def _checksum(content: bytes) -> bytes:
    """The masked CRC-32C of TFRecord files, little-endian."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _bytes_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_of_byte(byte) for byte in range(256)]
