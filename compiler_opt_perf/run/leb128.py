# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads LEB128 numbers, an encoding of DWARF, address maps and sample profiles."""


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
