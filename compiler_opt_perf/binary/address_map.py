# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The blocks of machine code that a binary's address map names."""

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
# Written by clang 18 to 22. From the last on, features are two bytes.
_VERSIONS = range(2, 6)
_WIDE_FEATURES = 5
# Bits of the features: llvm::object::BBAddrMap::Features of llvm/Object/ELFTypes.h.
_ENTRY_COUNT, _FREQUENCY, _PROBABILITY, _RANGES = 1, 2, 4, 8
_NO_BLOCKS, _CALL_SITES, _HASHES, _POST_LINK = 16, 32, 64, 128
_KNOWN_FEATURES = 255

# What a program must be compiled with for its map to say how blocks follow each other.
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
    """What the address map says of one function.

    Attributes:
      name: linkage name.
      entry: link-time address.
      blocks: address, size and id of each, in the order of the map.
      successors: of each block, id and probability; None without -pgo-analysis-map=br-prob.
    """

    name: str
    entry: int
    blocks: list[tuple[int, int, int]]
    successors: list[list[tuple[int, float]]] | None


def successors_of(function: MappedFunction, binary: Path) -> list[list[tuple[int, float]]]:
    """Id and probability of the successors of each block of a function.

    Raises:
      BinaryError: the map of `binary` does not name them.
    """
    if function.successors is None:
        raise BinaryError(
            f"{binary}: its address map does not say which blocks follow each other; "
            f"compile it with {ANALYSIS_FLAGS}"
        )
    return function.successors


def read_address_map(binary: Path) -> list[MappedFunction]:
    """The functions of a linked binary's address map; those that the linker dropped are left out.

    Raises:
      BinaryError: it cannot be read, is not an x86-64 ELF file, or has no address map of a version
        that is known here.
    """
    with open_elf(binary) as elf:
        if not is_x86_64(elf) or elf["e_type"] not in ("ET_EXEC", "ET_DYN"):
            raise BinaryError(f"{binary}: not a linked x86-64 program or shared library")
        maps = [
            section.data()
            for section in elf.iter_sections()
            if section["sh_type"] == _SECTION_TYPE or section.name == ".llvm_bb_addr_map"
        ]
        # Of several names a global one is the function's own, and of these the first by name: so
        # llvm-trace-cost has it, which finds functions by name. C++ has two for a constructor.
        symbols: dict[int, tuple[bool, str]] = {}
        for table in (".symtab", ".dynsym"):
            for symbol in read_symbols(elf, table):
                if symbol.kind == STT_FUNC and symbol.address:
                    one = symbol.is_local, symbol.name
                    symbols[symbol.address] = min(symbols.get(symbol.address, one), one)
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
    """Raises a BinaryError when blocks overlap.

    Functions that the linker has found to be identical begin at one place.
    """
    places = sorted(
        (address, size, block_id, function.name)
        for function in functions
        for address, size, block_id in function.blocks
        if size
    )
    for (start, size, block_id, name), (behind, _, other_id, other) in itertools.pairwise(places):
        if start != behind < start + size:
            raise BinaryError(
                f"{binary}: its basic-block address map has block {block_id} of {name} run into "
                f"block {other_id} of {other}: the map is damaged, or the linker has changed the "
                "code behind it; link without --optimize-bb-jumps"
            )


def _read_map(data: bytes, binary: Path, names: Mapping[int, str]) -> Iterator[MappedFunction]:
    """Reads one section. Format: docs/Extensions.rst of LLVM, "SHT_LLVM_BB_ADDR_MAP Section"."""
    cursor = _Cursor(data)
    try:
        while not cursor.done():
            version = cursor.byte()
            feature = cursor.half() if version >= _WIDE_FEATURES else cursor.byte()
            if version not in _VERSIONS or feature & ~_KNOWN_FEATURES:
                raise BinaryError(
                    f"{binary}: basic-block address map of version {version} (features "
                    f"{feature:#x}); versions {_VERSIONS[0]} to {_VERSIONS[-1]} are known here: "
                    f"compile it with clang {LLVM_MAJOR}"
                )
            if feature & _NO_BLOCKS:
                raise BinaryError(
                    f"{binary}: its basic-block address map has functions without their blocks; "
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
                raise ValueError("a block beyond the end of memory")
            if any(number >= 2**32 for _, *numbers in blocks for number in numbers):
                raise ValueError("a size or id of more than 32 bits")
            if not bases:
                raise ValueError("a function without an address")
            # The linker sets the address of a function that it has dropped to 0.
            if 0 not in bases:
                yield MappedFunction(
                    names.get(bases[0], f"0x{bases[0]:x}"),
                    bases[0],
                    blocks,
                    successors if feature & _PROBABILITY else None,
                )
    except (IndexError, struct.error) as error:
        raise BinaryError(
            f"{binary}: its basic-block address map ends in the middle of a function; build it anew"
        ) from error
    except ValueError as error:
        raise BinaryError(
            f"{binary}: its basic-block address map is damaged: at byte {cursor.place}, {error}; "
            "build it anew"
        ) from error


def _read_block(cursor: _Cursor, feature: int, place: int) -> tuple[int, int, int]:
    """Address, size and id of a block that follows what ends at `place`."""
    block_id = cursor.leb128()
    address = place + cursor.leb128()
    # The block's size comes in parts: up to the end of each call, and from there to its own.
    parts = cursor.leb128() if feature & _CALL_SITES else 0
    size = sum(cursor.leb128() for _ in range(parts + 1))
    cursor.leb128()  # what kind of block it is
    if feature & _HASHES:
        cursor.word()
    return address, size, block_id


def _read_successors(cursor: _Cursor, feature: int) -> list[tuple[int, float]]:
    """Id and probability of each successor of a block."""
    successors = []
    for _ in range(cursor.leb128()):
        # BranchProbability has a fixed denominator.
        successors.append((cursor.leb128(), cursor.leb128() / 2**31))
        if feature & _POST_LINK:
            cursor.leb128()
    return successors
