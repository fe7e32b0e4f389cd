# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which functions a profiled binary has, so that those that did not run are known not to have."""

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

# No function's control flow has it.
UNKNOWN = 0


def guid(name: str) -> int:
    """LLVM's number of the function with that linkage name: 64 bits of the name's MD5.

    As GlobalValue::getGUIDAssumingExternalLinkage.
    """
    digest = hashlib.md5(name.encode(errors="surrogateescape"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little")


@dataclass(frozen=True)
class FunctionTable:
    """The functions that a binary has code and debug info of, standing alone or inlined.

    A function of the table that is in no sample profile was profiled and did not run. Nothing is
    known of a function that is not in the table.

    Attributes:
      checksums: by `guid`, the checksum of the function's control flow, as LLVM's pseudo probes
        have it; `UNKNOWN` where the binary does not tell.
      shared: the `guid` of each name that several functions have, such as static ones of different
        files; a profile has the sum of their counts.
    """

    checksums: Mapping[int, int]
    shared: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, names: Iterable[str], checksums: Mapping[str, int], shared: Collection[str] = ()
    ) -> Self:
        """The table of the functions `names`; those without a checksum there have none here.

        Those with the checksum `UNKNOWN` there have several, and are shared as well as `shared`.
        """
        found = {guid(name): checksums.get(name, UNKNOWN) for name in names}
        several = {name for name, checksum in checksums.items() if checksum == UNKNOWN}
        return cls(found, frozenset(map(guid, several.union(shared))) & found.keys())

    def __len__(self) -> int:
        return len(self.checksums)

    def __contains__(self, name: str) -> bool:
        return guid(name) in self.checksums

    def unexecuted(self, executed: Iterable[str]) -> int:
        """How many functions are not among those with samples, `executed`."""
        return len(self.checksums.keys() - set(map(guid, executed)))

    @property
    def with_checksum(self) -> int:
        """How many functions have a checksum of their control flow."""
        return sum(checksum != UNKNOWN for checksum in self.checksums.values())

    def merged(self, other: Self) -> tuple[Self, int]:
        """The functions of both, and how many of them differ in their control flow.

        The samples of such a function are of two versions of its code, so that its checksum is of
        no use: it becomes `UNKNOWN`, and its name is shared.
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
        """The table as in its file (docs/reference/formats.md)."""
        guids = sorted([*self.checksums, *self.shared])
        checksums = [self.checksums[number] for number in guids]
        columns = struct.pack(f"<{2 * len(guids)}Q", *guids, *checksums)
        return HEAD.pack(_MAGIC, _VERSION, len(guids)) + columns

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads what `to_bytes` gave.

        Raises:
          PmuError: the file cannot be read, or is none of this format.
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
        for place, (one, checksum) in enumerate(zip(guids, columns[number:], strict=True)):
            if place and one < guids[place - 1]:
                raise PmuError(
                    f"{path}: function {place} is not in order; collect the profile again"
                )
            if one in checksums:
                shared.add(one)
            if checksums.setdefault(one, checksum) != checksum:
                checksums[one] = UNKNOWN
        return cls(checksums, frozenset(shared))


def control_flow_checksums(binary: Path) -> dict[str, int]:
    """Checksums of the control flow of functions, by linkage name, where the compiler left them.

    Section `.pseudo_probe_desc` has them, of programs that were compiled with
    -fpseudo-probe-for-profiling, say; an entry is a function's GUID, its checksum, and its name
    with a length before it (llvm/lib/Transforms/IPO/SampleProfileProbe.cpp). Of two static
    functions with one name, which a profile does not tell apart, nothing is known.

    Raises:
      BinaryError: no such file, or not an ELF file.
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
