# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of a binary's functions, which tells unexecuted from unknown functions."""

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.binary.elf import open_elf
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.leb128 import read_leb128
from compiler_opt_perf.run.symbol_names import canonical_name

_MAGIC = b"COPFUNCS"
_VERSION = 1
HEAD = struct.Struct("<8sII")

# Stands for a missing checksum; no function has the checksum 0.
UNKNOWN = 0


def guid(name: str) -> int:
    """The GUID that LLVM gives a linkage name: the first 64 bits of its MD5.

    Source: GlobalValue::getGUIDAssumingExternalLinkage.
    """
    digest = hashlib.md5(name.encode(errors="surrogateescape"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little")


@dataclass(frozen=True)
class FunctionTable:
    """The functions with code and debug info in a binary, inlined ones included.

    A function in the table without samples did not run. A function outside the table is unknown.

    Attributes:
      checksums: `guid` -> control-flow checksum of LLVM's pseudo probes; `UNKNOWN` if the binary
        has none.
      shared: `guid` of each name that several functions have, such as static functions of
        different files. The profile holds the sum of their counts.
    """

    checksums: Mapping[int, int]
    shared: frozenset[int] = frozenset()

    @classmethod
    def from_names(
        cls, names: Iterable[str], checksums: Mapping[str, int], shared: Collection[str] = ()
    ) -> Self:
        """Builds the table of the functions called `names`.

        Args:
          names: linkage names.
          checksums: the result of `control_flow_checksums`; `UNKNOWN` marks a name of several
            functions with different checksums.
          shared: further names that several functions have.
        """
        by_guid = {guid(name): checksums.get(name, UNKNOWN) for name in names}
        ambiguous = {name for name, checksum in checksums.items() if checksum == UNKNOWN}
        return cls(by_guid, frozenset(map(guid, ambiguous.union(shared))) & by_guid.keys())

    def __len__(self) -> int:
        return len(self.checksums)

    def __contains__(self, name: str) -> bool:
        return guid(name) in self.checksums

    def unexecuted(self, executed: Iterable[str]) -> int:
        """The number of functions without samples; `executed` names the functions with samples."""
        return len(self.checksums.keys() - set(map(guid, executed)))

    @property
    def with_checksum(self) -> int:
        """The number of functions that have a control-flow checksum."""
        return sum(checksum != UNKNOWN for checksum in self.checksums.values())

    def merged(self, other: Self) -> tuple[Self, int]:
        """The union of both tables, and the number of functions whose control flow differs.

        The samples of a differing function belong to two versions of its code: its checksum
        becomes `UNKNOWN`, and its name is shared.
        """
        checksums = dict(self.checksums)
        shared = set(self.shared | other.shared)
        differing = 0
        for number, theirs in other.checksums.items():
            mine = checksums.setdefault(number, theirs)
            if UNKNOWN not in (mine, theirs) and mine != theirs:
                differing += 1
                shared.add(number)
            if mine != theirs:
                checksums[number] = UNKNOWN
        return type(self)(checksums, frozenset(shared)), differing

    def to_bytes(self) -> bytes:
        """Serialises the table (docs/reference/formats.md)."""
        guids = sorted([*self.checksums, *self.shared])
        checksums = [self.checksums[number] for number in guids]
        columns = struct.pack(f"<{2 * len(guids)}Q", *guids, *checksums)
        return HEAD.pack(_MAGIC, _VERSION, len(guids)) + columns

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file with the result of `to_bytes`.

        Raises:
          PmuError: the file cannot be read, or is not in this format.
        """
        try:
            data = read_input(path)
        except OSError as error:
            raise PmuError(f"{path}: cannot be read: {error.strerror}") from error
        if len(data) < HEAD.size or data[: len(_MAGIC)] != _MAGIC:
            raise PmuError(f"{path}: not a table of functions; collect the profile again")
        _, version, number = HEAD.unpack_from(data)
        if version != _VERSION:
            raise PmuError(
                f"{path}: a table of functions of version {version}, expected {_VERSION}; collect "
                "the profile again"
            )
        if len(data) != HEAD.size + 16 * number:
            raise PmuError(
                f"{path}: has {len(data)} bytes, expected {HEAD.size + 16 * number} for "
                f"{number} functions; collect the profile again"
            )
        columns: Sequence[int] = struct.unpack_from(f"<{2 * number}Q", data, HEAD.size)
        guids = columns[:number]
        checksums: dict[int, int] = {}
        shared = set()
        for index, (key, checksum) in enumerate(zip(guids, columns[number:], strict=True)):
            if index and key < guids[index - 1]:
                raise PmuError(
                    f"{path}: function {index} is not in order; collect the profile again"
                )
            if key in checksums:
                shared.add(key)
            if checksums.setdefault(key, checksum) != checksum:
                checksums[key] = UNKNOWN
        return cls(checksums, frozenset(shared))


def control_flow_checksums(binary: Path) -> dict[str, int]:
    """Reads the control-flow checksums of a binary's functions: linkage name -> checksum.

    They are in section `.pseudo_probe_desc`, which -fpseudo-probe-for-profiling emits. An entry is
    GUID, checksum, length of the name, and name (llvm/lib/Transforms/IPO/SampleProfileProbe.cpp).
    A name of several functions with different checksums gets `UNKNOWN`.

    Raises:
      BinaryError: the file does not exist, or is not an ELF file.
      PmuError: the section is damaged.
    """
    with open_elf(binary) as elf:
        section = elf.get_section_by_name(".pseudo_probe_desc")
        data = section.data() if section is not None else b""
    checksums: dict[str, int] = {}
    place = 0
    while place < len(data):
        start = place
        try:
            length, place = read_leb128(data, start + 16)
            name_bytes = data[place : place + length]
            place += length
            if place > len(data):
                raise IndexError
        except (IndexError, ValueError) as error:
            raise PmuError(
                f"{binary}: its section .pseudo_probe_desc is damaged at byte {start}; link the "
                "program anew"
            ) from error
        checksum = int.from_bytes(data[start + 8 : start + 16], "little")
        name = canonical_name(name_bytes.decode(errors="surrogateescape"))
        if checksums.setdefault(name, checksum) != checksum:
            checksums[name] = UNKNOWN
    return checksums
