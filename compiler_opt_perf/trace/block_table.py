# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers the machine basic blocks of a binary for traces."""

import itertools
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.binary.address_map import read_address_map
from compiler_opt_perf.binary.elf import open_elf
from compiler_opt_perf.trace.errors import TraceError

# Longest padding before an aligned block, in bytes.
_MOST_PADDING = 64


@dataclass(frozen=True)
class BlockTable:
    """Machine blocks in the order of their addresses; a block's number is its position.

    Attributes:
      address: [B] uint64, link-time address of each block.
      size: [B] uint32, bytes; may be 0.
      block_id: [B] uint32, the compiler's number of the block in its function.
      function: [B] uint32, index of the block's function.
      entry: [F] uint64, link-time address of each function.
      names: [F] linkage names; local functions of two files may share one.
    """

    address: npt.NDArray[np.uint64]
    size: npt.NDArray[np.uint32]
    block_id: npt.NDArray[np.uint32]
    function: npt.NDArray[np.uint32]
    entry: npt.NDArray[np.uint64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.address)

    def describe(self, number: int) -> str:
        """Returns function and block id, such as "main.3"; "(gap)" for number B."""
        if number == len(self):
            return "(gap)"
        return f"{self.names[self.function[number]]}.{self.block_id[number]}"

    def jumps(
        self, before: npt.NDArray[np.uint32], after: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.bool_]:
        """Returns, for each pair of blocks executed in succession, whether a jump lies between.

        Execution falls through to the next block, also across padding.
        """
        end = self.address[before] + self.size[before]
        falls_through = self.address[after] >= end
        falls_through &= self.address[after] - end < _MOST_PADDING
        return ~falls_through

    def to_bytes(self) -> bytes:
        """Serialises the table (docs/reference/formats.md)."""
        names = [name.encode() for name in self.names]
        ends = np.cumsum([len(name) for name in names], dtype="<u4")
        columns = (self.address, self.size, self.block_id, self.function, self.entry, ends)
        types = ("<u8", "<u4", "<u4", "<u4", "<u8", "<u4")
        parts = [
            np.asarray(column).astype(kind).tobytes()
            for column, kind in zip(columns, types, strict=True)
        ]
        return b"".join([struct.pack("<II", len(names), len(self)), *parts, *names])

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Reads the bytes of `to_bytes`. Raises TraceError when they are malformed."""
        try:
            functions, blocks = struct.unpack_from("<II", raw)
            place = 8

            def column(kind: str, length: int) -> npt.NDArray[Any]:
                nonlocal place
                values = np.frombuffer(raw, kind, length, place)
                place += values.nbytes
                return values

            address = column("<u8", blocks)
            size, block_id, function = (column("<u4", blocks) for _ in range(3))
            entry, ends = column("<u8", functions), column("<u4", functions)
            text = raw[place:]
            bounds = [0, *(int(end) for end in ends)]
            names = tuple(text[start:end].decode() for start, end in itertools.pairwise(bounds))
            table = cls(address, size, block_id, function, entry, names)
            wrong = bounds[-1] != len(text) or (blocks and int(np.max(function)) >= functions)
        except (ValueError, struct.error) as error:
            raise TraceError(f"the block table is malformed: {error}") from error
        if wrong or bool(np.any(np.diff(table.address.astype(np.int64)) < 0)):
            raise TraceError("the block table is malformed")
        return table

    def starts(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Returns the addresses at which execution enters blocks, and block numbers; both ascend.

        A block without code has the address of its successor. At the end of its function it has no
        successor, and is never executed.
        """
        empty = self.size == 0
        number = np.arange(len(self), dtype=np.uint32)
        # The next block that has code; B when there is none.
        following = np.where(empty, len(self), number)
        following = np.minimum.accumulate(following[::-1])[::-1]
        inside = following < len(self)
        target = np.where(inside, following, 0)
        kept = inside & (self.address[target] == self.address)
        kept &= self.function[target] == self.function
        return self.address[kept], number[kept]


def read_block_table(binary: Path) -> BlockTable:
    """Reads the machine blocks of a linked binary. Raises the errors of read_address_map."""
    functions = read_address_map(binary)
    rows = [
        (*block, number) for number, function in enumerate(functions) for block in function.blocks
    ]
    # Stable: a block without code stays before its successor.
    rows.sort(key=lambda row: row[0])
    address, size, block_id, function = zip(*rows, strict=True)
    return BlockTable(
        np.array(address, np.uint64),
        np.array(size, np.uint32),
        np.array(block_id, np.uint32),
        np.array(function, np.uint32),
        np.array([function.entry for function in functions], np.uint64),
        tuple(function.name for function in functions),
    )


def read_code(binary: Path, table: BlockTable) -> list[bytes]:
    """The machine code of each block of `table`, which is the binary's. Raises BinaryError."""
    with open_elf(binary) as file:
        segments = [(int(s["p_vaddr"]), bytes(s.data())) for s in file.iter_segments("PT_LOAD")]
    starts = np.array([start for start, _ in segments], np.uint64)
    places = np.searchsorted(starts, table.address, side="right") - 1
    code = []
    for place, address, size in zip(
        places.tolist(), table.address.tolist(), table.size.tolist(), strict=True
    ):
        start, content = segments[place]
        code.append(content[address - start : address - start + size])
    return code
