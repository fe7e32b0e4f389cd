# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The index of a PMU profile: all that compilations read of it, in one file.

A compilation asks for a few functions. It maps the index, searches it where it lies, and reads
neither the manifest's JSON nor the sample profiles (docs/reference/profile-format.md).
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.function_table import HEAD as FUNCTIONS_HEAD
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.leb128 import read_leb128
from compiler_opt_perf.run.symbol_names import canonical_name

_MAGIC = b"COPINDEX"
_VERSION = 3
# Magic, version, unused, checksum of what follows.
_HEAD = struct.Struct("<8sIIQ")
_UNIQUE_SUFFIX = ".__uniq."

# llvm/include/llvm/ProfileData/SampleProf.h: SPMagic(SPF_Ext_Binary), SPVersion(), SecType.
_FILE_MAGIC = int.from_bytes(b"SPROF42\x04", "big")
_FILE_VERSION = 103
_SUMMARY, _NAMES, _OFFSETS, _FUNCTIONS = 1, 2, 4, 32
# Flags by section type that compilers can read: SecFlagFlat for all; and flags for partial and
# flow-sensitive profiles, unique suffixes, ordered functions, and attributes.
_FLAGS = {1: 0b101, 2: 0b100, 3: 0, 4: 0b1, 5: 0b10, 6: 0, 32: 0}
_FLAT = 2
_FLOW_SENSITIVE = 4


@dataclass(frozen=True)
class Tables:
    """What the index needs of one sample profile.

    Attributes:
      total: the sum of all counts.
      names: function names, in the order of the file.
      functions: the function section.
      places: (index of the name, offset in the function section) of each function.
      flow_sensitive: whether discriminators have bits of later passes above those of the base.
    """

    total: int
    names: Sequence[str]
    functions: bytes
    places: Sequence[tuple[int, int]]
    flow_sensitive: bool = False

    def packed(self, number_of: dict[str, int]) -> tuple[bytes, bytes]:
        """The sizes of the parts, and the parts: numbers of names, records and functions."""
        numbers = [number_of[name] for name in self.names]
        begins = sorted(place for _, place in self.places)
        ends = [*begins, len(self.functions)][1:]
        end_of = dict(zip(begins, ends, strict=True))
        records = []
        for name, begin in self.places:
            data = self.functions[begin : end_of[begin]]
            check = xxhash.xxh3_64_intdigest(data) & 0xFFFFFFFF
            records.append((numbers[name], begin, len(data), check))
        # A stable sort keeps the parts of one function in the order of the file.
        records.sort(key=_first)
        sizes = struct.pack(
            "<Q4I",
            self.total,
            len(numbers),
            len(records),
            len(self.functions),
            int(self.flow_sensitive),
        )
        columns = [*numbers, *(number for record in records for number in record)]
        return sizes, struct.pack(f"<{len(columns)}I", *columns) + self.functions


def index_of(manifest: Path) -> Path:
    """The path of the index of a manifest, NAME.index of NAME.json."""
    return manifest.with_suffix(".index")


def write_index(
    manifest: bytes, profiles: Sequence[Path], functions: bytes | None, path: Path
) -> None:
    """Writes the index of a profile to `path`.

    Args:
      manifest: the content of its file; another content needs another index.
      profiles: for each event, the sample profile and its flattened version, in LLVM's extensible
        binary format.
      functions: the content of the table of functions; None when they are not known.

    Raises:
      PmuError: a sample profile is not as llvm-profdata writes it; the message names file and byte.
      OSError: a file cannot be read or written.
    """
    document = json.loads(manifest)
    events, rates = document["events"], document["rates"]
    tables = [read_tables(profile) for profile in profiles]
    keys_of = {name: _key(name) for table in tables for name in table.names}
    keys = sorted(set(keys_of.values()))
    number_of_key = {key: number for number, key in enumerate(keys, 1)}
    number_of = {name: number_of_key[key] for name, key in keys_of.items()}
    has_unique_suffix = any(_UNIQUE_SUFFIX in name for name in keys_of)

    strings = bytearray()

    def text(name: str) -> int:
        place = len(strings)
        strings.extend(name.encode() + b"\0")
        return place

    rows = []
    for event in events:
        numbers = text(event["name"]), event["kind"] == "max"
        rows.append(struct.pack("<IIQQ", *numbers, event["total"], event.get("period", 1)))
    place_of = {event["name"]: place for place, event in enumerate(events)}
    for rate in rates:
        pair = (place_of[rate["numerator"]], place_of[rate["denominator"]])
        rows.append(struct.pack("<4Id", text(rate["name"]), *pair, 0, rate["prior_share"]))
    files = [table.packed(number_of) for table in tables]
    known = b"" if functions is None else functions[FUNCTIONS_HEAD.size :]
    body = struct.pack(f"<{len(keys)}Q", *keys) + known + b"".join(parts for _, parts in files)

    head = b"".join([*rows, bytes(strings), *(sizes for sizes, _ in files)])
    counts = (
        *(int(has_unique_suffix), int(functions is not None), len(events), len(rates)),
        *(len(strings), len(keys), len(known) // 16, 0),
    )
    size = _HEAD.size + 16 + 4 * len(counts) + len(head) + len(body) + 8
    head = struct.pack("<QQ8I", xxhash.xxh3_64_intdigest(manifest), size, *counts) + head
    checked = xxhash.xxh3_64_intdigest(head)
    data = _HEAD.pack(_MAGIC, _VERSION, 0, checked) + head + body
    path.write_bytes(data + xxhash.xxh3_64_digest(data)[::-1])


def check_index(manifest: Path) -> None:
    """Checks that the index of a manifest is whole and belongs to it.

    Raises:
      PmuError: it does not, or cannot be read; names file and remedy.
    """
    path = index_of(manifest)
    try:
        data = read_input(path)
        content = read_input(manifest)
    except OSError as error:
        raise PmuError(
            f"{path}: cannot be read: {error.strerror}; copy it beside the manifest, or collect "
            "the profile again"
        ) from error
    if not data.startswith(_MAGIC) or data[8:12] != _VERSION.to_bytes(4, "little"):
        raise PmuError(f"{path}: no index of version {_VERSION}; collect the profile again")
    if xxhash.xxh3_64_digest(data[:-8])[::-1] != data[-8:]:
        raise PmuError(f"{path}: damaged; copy or collect the profile again")
    if int.from_bytes(data[24:32], "little") != xxhash.xxh3_64_intdigest(content):
        raise PmuError(
            f"{path}: not of {manifest}, which was edited or is of another profile; copy or "
            "collect the profile again"
        )


def _first(record: tuple[int, ...]) -> int:
    return record[0]


def _key(name: str) -> int:
    """The compiler's key of a name: 63 bits of the XXH3 of its canonical form."""
    data = canonical_name(name).encode(errors="surrogateescape")
    return xxhash.xxh3_64_intdigest(data) & (1 << 63) - 1


def read_tables(path: Path) -> Tables:
    """Reads a sample profile, which may be empty if the event never occurred.

    Raises:
      PmuError: it is not as llvm-profdata writes it; names file and byte.
      OSError: it cannot be read.
    """
    data = path.read_bytes()
    if not data.strip():
        return Tables(0, [], b"", [])
    cursor = _Cursor(path, data, 0)
    if cursor.number() != _FILE_MAGIC or cursor.number() != _FILE_VERSION:
        raise PmuError(f"{path}: not a sample profile as llvm-profdata writes it")
    sections: dict[int, bytes] = {}
    flow_sensitive = False
    for _ in range(cursor.fixed()):
        where = cursor.place
        kind, flags, offset, size = (cursor.fixed() for _ in range(4))
        again = kind in (_NAMES, _OFFSETS, _FUNCTIONS) and kind in sections and size > 0
        if again or kind not in _FLAGS or flags & ~(_FLAGS[kind] << 32 | _FLAT):
            raise PmuError(
                f"{path}: the section at byte {where} is of a kind that compilers do not read; "
                "write it with 'llvm-profdata merge --sample --extbinary'"
            )
        flow_sensitive |= kind == _SUMMARY and bool(flags >> 32 & _FLOW_SENSITIVE)
        if size or kind not in sections:
            sections[kind] = data[offset : offset + size]
    functions = sections.get(_FUNCTIONS, b"")

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
    return Tables(total, decoded, functions, places, flow_sensitive)


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
