# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of measured blocks: our format (docs/reference/formats.md) and BHive's lists."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import atomic_write, input_lines
from compiler_opt_perf.run.json_text import Count, FieldError, decode

FORMAT = "compiler-opt-perf/measured-blocks"
VERSION = 1
#: BHive's unit is the cycles of this many executions.
_BHIVE_EXECUTIONS = 100

Known = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e12)]


class BlockFileError(UserError):
    """A file of measured blocks cannot be read; the message names the line."""


class Cpu(msgspec.Struct, frozen=True):
    """The CPU on which blocks were measured.

    Attributes:
      name: the model name in /proc/cpuinfo, which a hypervisor may shorten.
      mcpu: LLVM's name.
      family, model, stepping: the vendor's numbers.
    """

    name: str
    mcpu: str
    family: Count
    model: Count
    stepping: Count


class MeasuredBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block that was measured, or dropped.

    Attributes:
      code: hexadecimal digits.
      cycles: core cycles per execution, for many executions in a row; None if dropped.
      agreeing: number of measurement rounds whose cycles agree; `cycles` is their mean.
      rounds: number of measurement rounds.
      pages: number of pages that the block touched.
      dropped: the reason why there are no cycles; else empty.
      program, function, address: where it was found first; empty or None if unknown.
      occurrences: number of times it was found.
      pmu: name of a PMU input (docs/reference/formats.md) -> value for each instruction; None where
        unknown.
    """

    code: str
    cycles: Positive | None = None
    agreeing: Count = 0
    rounds: Count = 0
    pages: Count = 0
    dropped: str = ""
    program: str = ""
    function: str = ""
    address: Count | None = None
    occurrences: Count = 1
    pmu: dict[str, tuple[Known | None, ...]] = {}

    def __post_init__(self) -> None:
        _require_hex(self.code)
        if (self.cycles is None) == (not self.dropped):
            raise FieldError("cycles", "expected either cycles or a reason in `dropped`")
        if self.agreeing > self.rounds:
            raise FieldError("agreeing", f"more than the {self.rounds} rounds")


def _require_hex(code: str) -> None:
    try:
        good = bool(bytes.fromhex(code)) and code == code.lower() and " " not in code
    except ValueError:
        good = False
    if not good:
        raise FieldError("code", f"expected hexadecimal digits of bytes, found {code[:40]!r}")


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    version: int = VERSION
    cpu: Cpu
    nop_cycles: Positive
    measured: Count
    dropped: dict[str, Count]


@dataclass(frozen=True)
class MeasuredBlocks:
    """The content of a file of measured blocks.

    Attributes:
      cpu: the CPU; None if the file does not name it.
      nop_cycles: cycles of a NOP on an otherwise idle core; 0 if the file does not give them.
      rows: the blocks, in the file's order.
    """

    cpu: Cpu | None
    nop_cycles: float
    rows: Sequence[MeasuredBlock]

    def measured(self) -> list[MeasuredBlock]:
        """The rows with cycles."""
        return [row for row in self.rows if row.cycles is not None]

    def dropped(self) -> dict[str, int]:
        """Reason -> number of rows dropped for it, most frequent first."""
        counts = Counter(row.dropped for row in self.rows if row.dropped)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def write_blocks(path: Path, blocks: MeasuredBlocks) -> None:
    """Writes a file in our format. Raises FileWriteError."""
    assert blocks.cpu is not None
    head = _Head(
        cpu=blocks.cpu,
        nop_cycles=blocks.nop_cycles,
        measured=len(blocks.measured()),
        dropped=blocks.dropped(),
    )
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"".join(encoded(line) for line in (head, *blocks.rows)))


def encoded(value: msgspec.Struct) -> bytes:
    """Encodes a line of a file."""
    return msgspec.json.encode(value) + b"\n"


def read_blocks(path: Path) -> MeasuredBlocks:
    """Reads a file in our format or in BHive's.

    Raises:
      BlockFileError: the file cannot be read, lacks rows, or has a malformed line of BHive's.
      JsonError: a line in our format is damaged.
    """
    try:
        return _read(path)
    except OSError as error:
        raise BlockFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read(path: Path) -> MeasuredBlocks:
    lines = input_lines(path)
    first = next(lines, "")
    if not first.startswith("{"):
        return MeasuredBlocks(None, 0.0, _bhive_rows(path))
    head = decode(first, _Head, f"{path}:1", (FORMAT, VERSION))
    rows = [decode(line, MeasuredBlock, f"{path}:{number}") for number, line in enumerate(lines, 2)]
    blocks = MeasuredBlocks(head.cpu, head.nop_cycles, rows)
    if len(blocks.measured()) != head.measured or blocks.dropped() != head.dropped:
        expected = head.measured + sum(head.dropped.values())
        raise BlockFileError(
            f"{path}: has {len(rows)} blocks, {len(blocks.measured())} of them measured; its first "
            f"line says {expected} and {head.measured} (truncated?)"
        )
    return blocks


def listed_blocks(path: Path) -> Iterator[tuple[str, bytes, str]]:
    """Yields the rows of a list in BHive's form: place ("path:line"), code, second column.

    Rows without code are skipped, because BHive's lists have one. Further columns are ignored.
    Digits may be upper case, and lines may end with a carriage return.

    Raises:
      BlockFileError: a row's first column is not code.
      OSError: the file cannot be read.
    """
    for number, line in enumerate(input_lines(path), 1):
        text, _, rest = line.strip().partition(",")
        if not text.strip():
            continue
        try:
            code = bytes.fromhex(text)
        except ValueError as error:
            raise BlockFileError(
                f"{path}:{number}: {text[:40]!r} is not a block: expected an even number of "
                "hexadecimal digits, or an ELF file"
            ) from error
        yield f"{path}:{number}", code, rest.partition(",")[0].strip()


def _bhive_rows(path: Path) -> list[MeasuredBlock]:
    rows = []
    for place, code, text in listed_blocks(path):
        try:
            cycles = float(text) / _BHIVE_EXECUTIONS
            if not 0 < cycles < math.inf:
                raise ValueError
            rows.append(MeasuredBlock(code=code.hex(), cycles=cycles))
        except (ValueError, FieldError) as error:
            raise BlockFileError(
                f"{place}: {text[:60]!r}: expected code in hexadecimal digits, a comma and the "
                f"cycles of {_BHIVE_EXECUTIONS} executions, above 0"
            ) from error
    if not rows:
        raise BlockFileError(f"{path}: is empty; expected measured blocks")
    return rows


def write_bhive(path: Path, rows: Iterable[MeasuredBlock]) -> None:
    """Writes the rows that have cycles in BHive's form: code, cycles of 100 executions."""
    with atomic_write(path) as temporary, temporary.open("w") as stream:
        for row in rows:
            if row.cycles is not None:
                stream.write(f"{row.code},{_BHIVE_EXECUTIONS * row.cycles:.2f}\n")
