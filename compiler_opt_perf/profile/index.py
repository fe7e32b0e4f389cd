# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the index of a PMU profile: the function tables of all its sample profiles.

A compilation looks up a few functions. Without the index it would read the names and offsets of
all functions in each of some twenty files. The index is searched in place, as a mapped file
(docs/reference/formats.md).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.run.leb128 import read_leb128
from compiler_opt_perf.run.symbol_names import canonical_name

_MAGIC = b"COPINDEX"
_VERSION = 2
_UNIQUE_SUFFIX = ".__uniq."

# llvm/include/llvm/ProfileData/SampleProf.h: SPMagic(SPF_Ext_Binary), SPVersion(), SecType.
_FILE_MAGIC = int.from_bytes(b"SPROF42\x04", "big")
_FILE_VERSION = 103
_SUMMARY, _NAMES, _OFFSETS, _FUNCTIONS = 1, 2, 4, 32
# Flags by section type that compilers can read: SecFlagFlat for all; and flags for partial and
# flow-sensitive profiles, unique suffixes, ordered functions, and attributes.
_FLAGS = {1: 0b101, 2: 0b100, 3: 0, 4: 0b1, 5: 0b10, 6: 0, 32: 0}
_FLAT = 2


@dataclass(frozen=True)
class _Tables:
    """The tables of one sample profile.

    Attributes:
      xxh3: checksums of the whole file, of its header, and of its function section.
      total: the sum of all counts.
      names: function names, in the order of the file.
      places: (index of the name, offset in the function section) of each function.
    """

    xxh3: tuple[int, int, int]
    total: int
    names: Sequence[str]
    places: Sequence[tuple[int, int]]


def write_index(profiles: Sequence[Path], path: Path) -> None:
    """Writes the index of sample profiles in LLVM's extensible binary format to `path`.

    Args:
      profiles: for each event, the sample profile and its flattened version.
      path: file to write.

    Raises:
      PmuError: a profile is not as llvm-profdata writes it; the message names file and byte.
      OSError: a file cannot be read or written.
    """
    tables = [_read(profile) for profile in profiles]
    keys_of = {name: _key(name) for table in tables for name in table.names}
    keys = sorted(set(keys_of.values()))
    number_of_key = {key: number for number, key in enumerate(keys, 1)}
    number_of = {name: number_of_key[key] for name, key in keys_of.items()}
    has_unique_suffix = any(_UNIQUE_SUFFIX in name for name in keys_of)
    head = struct.pack("<8sIIII", _MAGIC, _VERSION, int(has_unique_suffix), len(keys), len(tables))
    parts = [head, struct.pack(f"<{len(keys)}Q", *keys)]
    parts += [
        struct.pack("<4Q2I", *table.xxh3, table.total, len(table.names), len(table.places))
        for table in tables
    ]
    for table in tables:
        numbers = [number_of[name] for name in table.names]
        # A stable sort keeps the parts of one function in the order of the file.
        records = sorted(((numbers[name], place) for name, place in table.places), key=_first)
        parts.append(struct.pack(f"<{len(numbers)}I", *numbers))
        parts.append(struct.pack(f"<{2 * len(records)}I", *(n for row in records for n in row)))
    path.write_bytes(b"".join(parts))


def _first(record: tuple[int, int]) -> int:
    return record[0]


def _key(name: str) -> int:
    """The compiler's key of a name: 63 bits of the XXH3 of its canonical form."""
    data = canonical_name(name).encode(errors="surrogateescape")
    return xxhash.xxh3_64_intdigest(data) & (1 << 63) - 1


def _read(path: Path) -> _Tables:
    """Reads the tables of a sample profile, which may be empty if the event never occurred."""
    data = path.read_bytes()
    if not data.strip():
        nothing = xxhash.xxh3_64_intdigest(b"")
        return _Tables((xxhash.xxh3_64_intdigest(data), nothing, nothing), 0, [], [])
    cursor = _Cursor(path, data, 0)
    if cursor.number() != _FILE_MAGIC or cursor.number() != _FILE_VERSION:
        raise PmuError(f"{path}: not a sample profile as llvm-profdata writes it")
    sections: dict[int, bytes] = {}
    for _ in range(cursor.fixed()):
        where = cursor.place
        kind, flags, offset, size = (cursor.fixed() for _ in range(4))
        again = kind in (_NAMES, _OFFSETS, _FUNCTIONS) and kind in sections and size > 0
        if again or kind not in _FLAGS or flags & ~(_FLAGS[kind] << 32 | _FLAT):
            raise PmuError(
                f"{path}: the section at byte {where} is of a kind that compilers do not read; "
                "write it with 'llvm-profdata merge --sample --extbinary'"
            )
        if size or kind not in sections:
            sections[kind] = data[offset : offset + size]
    head = data[: cursor.place]
    functions = sections.get(_FUNCTIONS, b"")
    xxh3 = tuple(xxhash.xxh3_64_intdigest(part) for part in (data, head, functions))

    names = sections.get(_NAMES, b"\0")
    cursor = _Cursor(path, names, 0)
    number = cursor.number()
    texts = names[cursor.place :].split(b"\0")[:number]
    if len(texts) != number:
        raise PmuError(f"{path}: its table of names is cut off; collect the profile again")
    cursor = _Cursor(path, sections.get(_OFFSETS, b"\0"), 0)
    places = [(cursor.number(), cursor.number()) for _ in range(cursor.number())]
    if any(name >= number or place >= len(functions) for name, place in places):
        raise PmuError(f"{path}: its table of functions is damaged; collect the profile again")
    total = _Cursor(path, sections.get(_SUMMARY, b"\0"), 0).number()
    decoded = [text.decode(errors="surrogateescape") for text in texts]
    return _Tables((xxh3[0], xxh3[1], xxh3[2]), total, decoded, places)


class _Cursor:
    """Reads consecutive numbers of a file. Raises PmuError at the end of the file."""

    def __init__(self, path: Path, data: bytes, place: int):
        self._path = path
        self._data = data
        self.place = place

    def number(self) -> int:
        """Reads an unsigned LEB128 number."""
        try:
            value, self.place = read_leb128(self._data, self.place)
        except (IndexError, ValueError) as error:
            raise PmuError(
                f"{self._path}: cut off or damaged; collect the profile again"
            ) from error
        return value

    def fixed(self) -> int:
        """Reads an unsigned number of eight bytes."""
        self.place += 8
        if self.place > len(self._data):
            raise PmuError(f"{self._path}: cut off; collect the profile again")
        return int.from_bytes(self._data[self.place - 8 : self.place], "little")
