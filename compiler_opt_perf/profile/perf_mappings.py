# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the binary among a recording's files, and its addresses in the recorded processes."""

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

from compiler_opt_perf.binary.elf import build_id, open_elf
from compiler_opt_perf.profile.errors import PmuError

MMAP = re.compile(
    r"PERF_RECORD_MMAP2? (-?[0-9]{1,10})/-?\d+: "
    r"\[0x([0-9a-f]{1,16})\(0x([0-9a-f]{1,16})\) @ (?:0x)?([0-9a-f]{1,16})"
    r"(?: <([0-9a-f]*)>)?[^\]]*\]: (\S+) (.*)$"
)
DELETED = " (deleted)"
# The shortest prefix of a build-id that identifies a binary, in hexadecimal digits.
_SHORTEST_ID = 16


class RecordedBinary:
    """The files of a recording that are the binary.

    Attributes:
      name: the binary's file name.
      paths: recorded paths of the binary; if empty, any path with its file name is taken.
      proven: whether a recorded build-id identifies the binary.
    """

    def __init__(self, binary: Path, files: Iterable[tuple[str, str]], origin: str):
        """Chooses among the files of the binary's name by build-id, otherwise by folder.

        Args:
          binary: the binary's present path.
          files: path and build-id of each mapped file; the build-id is empty if unknown.
          origin: name of the recording in messages.

        Raises:
          PmuError: no file is the binary, or several may be.
        """
        self.name = binary.name
        self._id = build_id(binary)
        ids: dict[str, set[str]] = defaultdict(set)
        for path, found in files:
            if self._may_be(path):
                ids[path].add(found if found.strip("0") else "")
        proven = {path for path, found in ids.items() if any(map(self._is_mine, found))}
        possible = {path for path, found in ids.items() if "" in found}
        self.paths: Collection[str] = proven or _nearest(possible, binary)
        self.proven = bool(proven)
        if ids and not self.paths:
            path, others = min(ids.items())
            raise PmuError(
                f"{origin}: it recorded {path} with build-id {min(others)}, but {binary} has "
                f"build-id {self._id}; name the binary that ran"
            )
        if len(self.paths) > 1 and not proven:
            raise PmuError(
                f"{origin}: several programs called {binary.name} ran, and {binary} may be any of "
                f"them: {', '.join(sorted(self.paths))}; give a path that ends like one of these, "
                "or record with build-ids (perf record --buildid-mmap)"
            )

    def takes(self, path: str, found: str) -> bool:
        """Whether the mapped file `path` with build-id `found` (may be empty) is the binary."""
        if not self._may_be(path):
            return False
        if found.strip("0"):
            return self._is_mine(found)
        return not self.paths or path in self.paths

    def _may_be(self, path: str) -> bool:
        return Path(path.removesuffix(DELETED)).name == self.name

    def _is_mine(self, found: str) -> bool:
        """Whether a recorded build-id is the binary's; perf pads or cuts build-ids to 20 bytes."""
        known, mine = found.rstrip("0"), self._id.rstrip("0")
        return known == mine or (len(known) >= _SHORTEST_ID and self._id.startswith(known))


def _nearest(paths: Collection[str], binary: Path) -> Collection[str]:
    """The paths that share the longest suffix of folders with the binary's path."""
    if len(paths) < 2:
        return paths
    mine = binary.absolute().parts[::-1]

    def common(path: str) -> int:
        pairs = zip(mine, Path(path.removesuffix(DELETED)).parts[::-1], strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    most = max(map(common, paths))
    return [path for path in paths if common(path) == most]


def mapped_files(lines: Iterable[str]) -> set[tuple[str, str]]:
    """Path and build-id of each executable mapping in the output of perf script."""
    found = set()
    for line in lines:
        mapped = MMAP.search(line) if "PERF_RECORD_MMAP" in line else None
        if mapped is not None and "x" in mapped[6]:
            found.add((mapped[7].strip(), mapped[5] or ""))
    return found


class Mappings:
    """The memory mappings of the binary in each process of a recording.

    Attributes:
      seen: names of all mapped files.
      found: whether any process mapped the binary.
    """

    def __init__(self, binary: Path, recorded: RecordedBinary):
        self._recorded = recorded
        # Process -> (begin, end, file offset) of the binary's mappings, which do not overlap.
        self._by_process: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        # Process -> (begin, end, name) of other mappings over the binary.
        self._hidden: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self.seen: set[str] = set()
        self.found = False
        with open_elf(binary) as file:
            self._segments = [
                (segment["p_offset"], segment["p_filesz"], segment["p_vaddr"])
                for segment in file.iter_segments("PT_LOAD")
            ]

    def add(
        self, pid: int, start: int, size: int, offset: int, name: str, identity: str = ""
    ) -> None:
        """Records that a process mapped part of a file; `identity` is its build-id, or empty."""
        self.seen.add(name)
        end = start + size
        # A new mapping hides the parts of older mappings that it overlaps.
        parts = []
        ours = self._recorded.takes(name, identity)
        for begin, stop, place in self._by_process[pid]:
            if stop <= start or begin >= end:
                parts.append((begin, stop, place))
                continue
            if begin < start:
                parts.append((begin, start, place))
            if stop > end:
                parts.append((end, stop, place + end - begin))
            if not ours:
                self._hidden[pid].append((max(begin, start), min(stop, end), name))
        if ours:
            self.found = True
            parts.append((start, end, offset))
        self._by_process[pid] = parts

    def fork(self, child: int, parent: int) -> None:
        """Records that a child process inherits its parent's mappings."""
        if child != parent:
            self._by_process[child] = list(self._by_process[parent])
            self._hidden[child] = list(self._hidden[parent])

    def forget(self, pid: int) -> None:
        """Records that a process now runs another program."""
        self._by_process.pop(pid, None)
        self._hidden.pop(pid, None)

    def hidden_by(self, pid: int, address: int) -> str | None:
        """The name of the mapping that covers the binary at `address`; None if there is none."""
        for start, end, name in self._hidden.get(pid, ()):
            if start <= address < end:
                return name
        return None

    def link_time(self, pid: int, address: int) -> int | None:
        """The link-time address in the binary; None outside it."""
        for start, end, offset in self._by_process.get(pid, ()):
            if start <= address < end:
                place = address - start + offset
                for segment_offset, size, virtual in self._segments:
                    if segment_offset <= place < segment_offset + size:
                        return int(place - segment_offset + virtual)
        return None
