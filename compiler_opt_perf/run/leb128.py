# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LEB128 numbers, an encoding of DWARF, address maps, sample profiles and traces."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

# LEB128 bytes of a 64-bit number.
_LONGEST_CODE = 10


def read_leb128(data: bytes, place: int) -> tuple[int, int]:
    """The unsigned number at `place`, and the place after it.

    Raises:
      IndexError: the data ends before the number does.
      ValueError: it has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def write_leb128s(values: Iterable[int]) -> bytes:
    """Encodes each value as unsigned LEB128."""
    raw = bytearray()
    for value in values:
        while value >= 0x80:
            raw.append(value & 0x7F | 0x80)
            value >>= 7
        raw.append(value)
    return bytes(raw)


def read_leb128s(raw: bytes) -> npt.NDArray[np.uint64]:
    """Decodes all LEB128 numbers of `raw`, uint64. Raises ValueError at more than 64 bits."""
    data = np.frombuffer(raw, np.uint8)
    last = np.flatnonzero(data < 0x80)
    first = np.concatenate(([0], last[:-1] + 1)) if len(last) else last
    values = np.zeros(len(last), np.uint64)
    for place in range(int(np.max(last - first, initial=-1)) + 1):
        there = first + place <= last
        if place == _LONGEST_CODE:
            raise ValueError("a number of more than 64 bits")
        bits = data[(first + place)[there]].astype(np.uint64) & np.uint64(0x7F)
        values[there] |= bits << np.uint64(7 * place)
    return values
