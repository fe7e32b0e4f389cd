# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the machine basic blocks of a binary from its address map (.llvm_bb_addr_map)."""

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.binary.elf import STT_FUNC, BinaryError, is_x86_64, open_elf, read_symbols
from compiler_opt_perf.run.leb128 import read_leb128
from compiler_opt_perf.run.llvm import LLVM_MAJOR

# SHT_LLVM_BB_ADDR_MAP of llvm/BinaryFormat/ELF.h
_SECTION_TYPE = 0x6FFF4C0A
# Clang 18 to 22 write these versions. Version 5 has features of two bytes.
_VERSIONS = range(2, 6)
_WIDE_FEATURES = 5
# Feature bits: llvm::object::BBAddrMap::Features of llvm/Object/ELFTypes.h.
_ENTRY_COUNT, _FREQUENCY, _PROBABILITY, _RANGES = 1, 2, 4, 8
_NO_BLOCKS, _CALL_SITES, _HASHES, _POST_LINK = 16, 32, 64, 128
_KNOWN_FEATURES = 255

# These flags give an address map with the successors of each block.
ANALYSIS_FLAGS = "-fbasic-block-address-map -mllvm -pgo-analysis-map=br-prob"
_HOW_TO_BUILD = "compile and link it with clang -fbasic-block-address-map"


class _Cursor:
    """Reads numbers from bytes."""

    def __init__(self, data: bytes):
        self._data = data
        self.place = 0

    def done(self) -> bool:
        return self.place >= len(self._data)

    def byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def half(self) -> int:
        return self.byte() | self.byte() << 8

    def word(self) -> int:
        self.place += 8
        return int(struct.unpack_from("<Q", self._data, self.place - 8)[0])

    def leb128(self) -> int:
        value, self.place = read_leb128(self._data, self.place)
        return value


@dataclass(frozen=True)
class MappedFunction:
    """One function of the address map.

    Attributes:
      name: linkage name.
      entry: link-time address.
      blocks: (link-time address, size in bytes, id) of each block, in the order of the map.
      successors: (id, probability) of each block's successors; None without
        -pgo-analysis-map=br-prob.
    """

    name: str
    entry: int
    blocks: list[tuple[int, int, int]]
    successors: list[list[tuple[int, float]]] | None


def successors_of(function: MappedFunction, binary: Path) -> list[list[tuple[int, float]]]:
    """Returns (id, probability) of the successors of each block of a function.

    Raises:
      BinaryError: the address map of `binary` has no successors.
    """
    if function.successors is None:
        raise BinaryError(
            f"{binary}: its address map does not say which blocks follow each other; "
            f"compile it with {ANALYSIS_FLAGS}"
        )
    return function.successors


def read_address_map(binary: Path) -> list[MappedFunction]:
    """Reads the functions of a linked binary's address map, without those that the linker dropped.

    Raises:
      BinaryError: the binary cannot be read, is not an x86-64 ELF file, or has no address map of a
        known version.
    """
    with open_elf(binary) as elf:
        if not is_x86_64(elf) or elf["e_type"] not in ("ET_EXEC", "ET_DYN"):
            raise BinaryError(f"{binary}: not a linked x86-64 program or shared library")
        maps = [
            section.data()
            for section in elf.iter_sections()
            if section["sh_type"] == _SECTION_TYPE or section.name == ".llvm_bb_addr_map"
        ]
        # A function can have several names, such as the two of a C++ constructor. Prefer global
        # names, then the alphabetically first: llvm-trace-cost finds functions by the same rule.
        symbols: dict[int, tuple[bool, str]] = {}
        for table in (".symtab", ".dynsym"):
            for symbol in read_symbols(elf, table):
                if symbol.kind == STT_FUNC and symbol.address:
                    candidate = symbol.is_local, symbol.name
                    known = symbols.get(symbol.address, candidate)
                    symbols[symbol.address] = min(known, candidate)
        names = {address: name for address, (_, name) in symbols.items()}
    if not any(maps):
        raise BinaryError(
            f"{binary}: has no basic-block address map, which names the blocks of its code; "
            f"{_HOW_TO_BUILD}"
        )
    functions = [function for data in maps for function in _read_map(data, binary, names)]
    if not any(function.blocks for function in functions):
        raise BinaryError(f"{binary}: its basic-block address map is empty; {_HOW_TO_BUILD}")
    _check_overlaps(functions, binary)
    return functions


def _check_overlaps(functions: Iterable[MappedFunction], binary: Path) -> None:
    """Raises BinaryError when blocks overlap.

    Blocks may share an address: the linker folds identical functions into one.
    """
    blocks = sorted(
        (address, size, block_id, function.name)
        for function in functions
        for address, size, block_id in function.blocks
        if size
    )
    for (start, size, block_id, name), (following, _, other_id, other) in itertools.pairwise(
        blocks
    ):
        if start != following < start + size:
            raise BinaryError(
                f"{binary}: block {block_id} of {name} overlaps block {other_id} of {other} in the "
                "basic-block address map: the map is damaged, or the linker moved code after it "
                "was written; link without --optimize-bb-jumps"
            )


def _read_map(data: bytes, binary: Path, names: Mapping[int, str]) -> Iterator[MappedFunction]:
    """Parses one section. Format: LLVM's docs/Extensions.rst, "SHT_LLVM_BB_ADDR_MAP Section"."""
    cursor = _Cursor(data)
    try:
        while not cursor.done():
            version = cursor.byte()
            feature = cursor.half() if version >= _WIDE_FEATURES else cursor.byte()
            if version not in _VERSIONS or feature & ~_KNOWN_FEATURES:
                raise BinaryError(
                    f"{binary}: basic-block address map of version {version} (features "
                    f"{feature:#x}); versions {_VERSIONS[0]} to {_VERSIONS[-1]} are supported: "
                    f"compile it with clang {LLVM_MAJOR}"
                )
            if feature & _NO_BLOCKS:
                raise BinaryError(
                    f"{binary}: its basic-block address map has functions without blocks; "
                    "compile it without -basic-block-address-map-skip-bb-entries"
                )
            blocks: list[tuple[int, int, int]] = []
            bases: list[int] = []
            for _ in range(cursor.leb128() if feature & _RANGES else 1):
                place = cursor.word()
                bases.append(place)
                for _ in range(cursor.leb128()):
                    block = _read_block(cursor, feature, place)
                    blocks.append(block)
                    place = block[0] + block[1]
            if feature & _ENTRY_COUNT:
                cursor.leb128()
            successors = []
            for _ in blocks if feature & (_FREQUENCY | _PROBABILITY) else ():
                if feature & _FREQUENCY:
                    cursor.leb128()
                if feature & _POST_LINK:
                    cursor.leb128()
                if feature & _PROBABILITY:
                    successors.append(_read_successors(cursor, feature))
            if any(address + size >= 2**64 for address, size, _ in blocks):
                raise ValueError("a block beyond the 64-bit address space")
            if any(number >= 2**32 for _, *numbers in blocks for number in numbers):
                raise ValueError("a size or id of more than 32 bits")
            if not bases:
                raise ValueError("a function without an address")
            # The linker sets the address of a dropped function to 0.
            if 0 not in bases:
                yield MappedFunction(
                    names.get(bases[0], f"0x{bases[0]:x}"),
                    bases[0],
                    blocks,
                    successors if feature & _PROBABILITY else None,
                )
    except (IndexError, struct.error) as error:
        raise BinaryError(
            f"{binary}: its basic-block address map ends within a function; build it again"
        ) from error
    except ValueError as error:
        raise BinaryError(
            f"{binary}: its basic-block address map is damaged: at byte {cursor.place}, {error}; "
            "build it again"
        ) from error


def _read_block(cursor: _Cursor, feature: int, place: int) -> tuple[int, int, int]:
    """Reads address, size and id of a block; `place` is the end address of the previous block."""
    block_id = cursor.leb128()
    address = place + cursor.leb128()
    # The size comes in parts: up to the end of each call, and from the last call to the end.
    parts = cursor.leb128() if feature & _CALL_SITES else 0
    size = sum(cursor.leb128() for _ in range(parts + 1))
    cursor.leb128()  # metadata, such as "has a return"
    if feature & _HASHES:
        cursor.word()
    return address, size, block_id


def _read_successors(cursor: _Cursor, feature: int) -> list[tuple[int, float]]:
    """Reads (id, probability) of each successor of a block."""
    successors = []
    for _ in range(cursor.leb128()):
        # BranchProbability has a fixed denominator.
        successors.append((cursor.leb128(), cursor.leb128() / 2**31))
        if feature & _POST_LINK:
            cursor.leb128()
    return successors
