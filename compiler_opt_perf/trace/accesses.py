# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory accesses of stretches of a run, as the tracer recorded them.

The tracer tells which instruction accessed which address, and how many blocks had begun by then. A
block that calls has accesses after those of its callee, so that each access belongs to the latest
execution of the block that holds its instruction.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.leb128 import read_leb128, read_leb128s
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.native import Numbers


@dataclass(frozen=True)
class Stretch:
    """Accesses to memory of some consecutive blocks of a stream.

    Attributes:
      first: position of the first block in the stream.
      begun: [A] int64, blocks of the stretch that had begun before each access.
      instruction: [A] uint64, link-time address of the instruction.
      stores: [A] bool, whether it wrote.
      address: [A] uint64, the first byte that it accessed.
    """

    first: int
    begun: npt.NDArray[np.int64]
    instruction: npt.NDArray[np.uint64]
    stores: npt.NDArray[np.bool_]
    address: npt.NDArray[np.uint64]

    def rows(self, table: BlockTable, numbers: Numbers) -> npt.NDArray[np.uint64]:
        """The accesses by block execution.

        Args:
          table: the program's blocks.
          numbers: [N] block numbers of the stretch, or of its beginning.

        Returns:
          [K, 4] uint64: position in `numbers`, byte of the block, whether it wrote, address. They
          ascend by position, and by byte as far as the block ran straight on.
        """
        starts, blocks = table.starts()
        # The block that holds each instruction.
        place = np.searchsorted(starts, self.instruction, side="right") - 1
        known = place >= 0
        block = blocks[np.maximum(place, 0)]
        byte = self.instruction - table.address[block]
        known &= byte < table.size[block]
        latest: dict[int, int] = {}
        position = np.full(len(block), -1)
        seen = 0
        for index in np.flatnonzero(known).tolist():
            while seen < min(self.begun[index], len(numbers)):
                latest[int(numbers[seen])] = seen
                seen += 1
            if self.begun[index] <= len(numbers):
                position[index] = latest.get(int(block[index]), -1)
        kept = np.flatnonzero(position >= 0)
        kept = kept[np.argsort(position[kept], kind="stable")]
        columns = (position.astype(np.uint64), byte, self.stores.astype(np.uint64), self.address)
        return np.stack([column[kept] for column in columns], axis=1)


def read_stretches(raw: bytes) -> list[Stretch]:
    """The content of a record of accesses (docs/reference/trace-format.md), in order.

    Raises:
      ValueError: the content is malformed.
    """
    stretches = []
    place = 0
    while place < len(raw):
        try:
            first, place = read_leb128(raw, place)
            size, place = read_leb128(raw, place)
        except IndexError as error:
            raise ValueError("a number ends too early") from error
        if size > len(raw) - place:
            raise ValueError("a stretch ends too early")
        rows = read_leb128s(raw[place : place + size]).reshape(-1, 3)
        place += size
        one = np.uint64(1)
        stretches.append(
            Stretch(
                first,
                np.cumsum(rows[:, 0]).astype(np.int64),
                np.cumsum(_signed(rows[:, 1] >> one)),
                (rows[:, 1] & one).astype(bool),
                np.cumsum(_signed(rows[:, 2])),
            )
        )
    return stretches


def _signed(codes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Numbers in zigzag code, as two's complement."""
    return (codes >> np.uint64(1)) ^ (np.uint64(0) - (codes & np.uint64(1)))
