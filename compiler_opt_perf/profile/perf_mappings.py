# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which of a recording's files is the binary, and where processes had it in memory."""

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
# The shortest part of a build-id that tells binaries apart, in hexadecimal digits.
_SHORTEST_ID = 16


class Recorded:
    """Which of the files that a recording names are the binary."""

    def __init__(self, binary: Path, files: Iterable[tuple[str, str]], origin: str):
        """Chooses among files of the binary's name, by build-id, else by folder.

        Args:
          binary: where it is now.
          files: path and build-id of files that were mapped; the id is empty where nothing tells.
          origin: what to call the recording in messages.

        Raises:
          PmuError: the binary is none of them, or may be several.
        """
        self.name = binary.name
        self._id = build_id(binary)
        ids: dict[str, set[str]] = defaultdict(set)
        for path, found in files:
            if self._may_be(path):
                ids[path].add(found if found.strip("0") else "")
        proven = {path for path, found in ids.items() if any(map(self._is_mine, found))}
        possible = {path for path, found in ids.items() if "" in found}
        #: Paths that are taken for the binary; any of its name when there are none.
        self.paths: Collection[str] = proven or _nearest(possible, binary)
        #: Whether the recording tells that it is the binary.
        self.proven = bool(proven)
        if ids and not self.paths:
            path, others = min(ids.items())
            raise PmuError(
                f"{origin}: it recorded {path} with build-id {min(others)}, but {binary} has "
                f"build-id {self._id}; name the binary that ran"
            )
        if len(self.paths) > 1 and not proven:
            raise PmuError(
                f"{origin}: several programs called {binary.name} ran, and nothing tells which of "
                f"them {binary} is: {', '.join(sorted(self.paths))}; name it by a path that ends "
                "as one of these does, or record with build-ids (perf record --buildid-mmap)"
            )

    def takes(self, path: str, found: str) -> bool:
        """Whether a mapped file, whose build-id may be empty, is the binary."""
        if not self._may_be(path):
            return False
        if found.strip("0"):
            return self._is_mine(found)
        return not self.paths or path in self.paths

    def _may_be(self, path: str) -> bool:
        return Path(path.removesuffix(DELETED)).name == self.name

    def _is_mine(self, found: str) -> bool:
        """Whether a recorded build-id is the binary's; perf pads and cuts them to 20 bytes."""
        known, mine = found.rstrip("0"), self._id.rstrip("0")
        return known == mine or (len(known) >= _SHORTEST_ID and self._id.startswith(known))


def _nearest(paths: Collection[str], binary: Path) -> Collection[str]:
    """Of several paths, those that have most folders in common with the binary's, from its name."""
    if len(paths) < 2:
        return paths
    mine = binary.absolute().parts[::-1]

    def common(path: str) -> int:
        pairs = zip(mine, Path(path.removesuffix(DELETED)).parts[::-1], strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    most = max(map(common, paths))
    return [path for path in paths if common(path) == most]


def mapped_files(lines: Iterable[str]) -> set[tuple[str, str]]:
    """Path and build-id of each executable file that the output of perf script says was mapped."""
    found = set()
    for line in lines:
        mapped = MMAP.search(line) if "PERF_RECORD_MMAP" in line else None
        if mapped is not None and "x" in mapped[6]:
            found.add((mapped[7].strip(), mapped[5] or ""))
    return found


class Mappings:
    """Where the processes of a recording had the binary in memory."""

    def __init__(self, binary: Path, recorded: Recorded):
        self._recorded = recorded
        # Of each process, begin, end and offset in the file; these do not overlap.
        self._by_process: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        # Where it put something else over the binary: begin, end, and what.
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
        """The process maps a part of a file, whose build-id is `identity` where that is known."""
        self.seen.add(name)
        end = start + size
        # What is mapped over a part of an older mapping hides that part.
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
        """The child has its parent's mappings."""
        if child != parent:
            self._by_process[child] = list(self._by_process[parent])
            self._hidden[child] = list(self._hidden[parent])

    def forget(self, pid: int) -> None:
        """The process runs another program from here on."""
        self._by_process.pop(pid, None)
        self._hidden.pop(pid, None)

    def hidden_by(self, pid: int, address: int) -> str | None:
        """What the process put there over the binary; None where it did not."""
        for start, end, name in self._hidden.get(pid, ()):
            if start <= address < end:
                return name
        return None

    def link_time(self, pid: int, address: int) -> int | None:
        """The address in the binary; None outside it."""
        for start, end, offset in self._by_process.get(pid, ()):
            if start <= address < end:
                place = address - start + offset
                for segment_offset, size, virtual in self._segments:
                    if segment_offset <= place < segment_offset + size:
                        return int(place - segment_offset + virtual)
        return None
