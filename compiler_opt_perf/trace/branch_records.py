# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports traces of real hardware: branch records (LBR, BRS) and Intel PT, as perf prints them.

Between two successive taken branches, the program executed all code from the target of the first to
the address of the second. The trace lists each block that begins there.
"""

import itertools
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from absl import logging

from compiler_opt_perf.binary.elf import build_id
from compiler_opt_perf.profile.perf_data import is_perf_data, read_recording, recorded_in_text
from compiler_opt_perf.profile.perf_event_table import unit_of
from compiler_opt_perf.profile.perf_mappings import Mappings
from compiler_opt_perf.profile.perf_script import Script, read_event
from compiler_opt_perf.profile.perf_stacks import StackBranch
from compiler_opt_perf.run.files import input_lines
from compiler_opt_perf.trace.block_table import BlockTable, read_block_table
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import Trace, TraceDescription
from compiler_opt_perf.trace.trace_writer import new_trace, require_suffix, write_blocks

# A longer stretch without a taken branch, in bytes, shows that records between are missing.
_LONGEST_RANGE = 1 << 16
# perf script --itrace=b -F pid,tid,event,ip,addr: "1234/1235  branches:u:  401136 => 401020".
# Address 0 stands for code that was not traced.
_PT_BRANCH = re.compile(
    r"^\s*(?P<pid>\d+)/(?P<tid>\d+)\s+(?:\d+\s+)?branches\S*\s+(?:.*?\s)??"
    r"(?P<source>[0-9a-f]+)\s+=>\s+(?P<target>[0-9a-f]+)\s*$"
)
PT_COMMAND = "perf script --itrace=b --show-mmap-events --show-task-events -F pid,tid,event,ip,addr"


class _BlockPath:
    """The blocks along chains of taken branches.

    Attributes:
      blocks: block numbers, with gaps between the chains.
      chains: number of chains.
      broken: number of impossible stretches between two branches.
    """

    def __init__(self, table: BlockTable):
        self._addresses, self._numbers = table.starts()
        self._gap = len(table)
        self.blocks = array("I")
        self.chains = 0
        self.broken = 0

    def add_range(self, start: int, last: int) -> None:
        """Adds the blocks executed from `start` up to the branch at `last`."""
        if not 0 <= last - start < _LONGEST_RANGE:
            self.broken += 1
            self.end_chain()
            return
        begin = np.searchsorted(self._addresses, np.uint64(start), "left")
        end = np.searchsorted(self._addresses, np.uint64(last), "right")
        if begin < end:
            self.blocks.frombytes(self._numbers[begin:end].tobytes())

    def end_chain(self) -> None:
        """Ends a chain of branches with a gap."""
        self.chains += 1
        if self.blocks and self.blocks[-1] != self._gap:
            self.blocks.append(self._gap)

    def numbers(self) -> Numbers:
        """Returns the blocks and gaps as an array."""
        return np.frombuffer(self.blocks, np.uint32)


def import_recording(recording: Path, binary: Path, output: Path) -> Trace:
    """Writes a trace of one binary from a recording of perf.

    Branch records give a trace of fragments: each sample has some tens of branches, and a gap
    separates it from the next.

    Args:
      recording: a perf.data with branch stacks, its text from `perf script`, or the text of an
        Intel PT recording (PT_COMMAND).
      binary: the program that ran, with an address map and a build-id.
      output: NAME.bbtrace.

    Raises:
      TraceError: the recording has no branches in the binary.
      BinaryError: the binary has no address map.
      PmuError: the recording cannot be read, or is not of this binary.
      FileWriteError: the disk is full, or the output folder cannot be written.
    """
    require_suffix(output)
    table = read_block_table(binary)
    paths, tool = _pt_streams(recording, binary, table), "perf, Intel PT"
    if paths is None:
        paths, tool = {(0, 0): _fragments(recording, binary, table)}, "perf, branch records"
    if not any(path.blocks for path in paths.values()):
        raise TraceError(
            f"{recording}: no branches in {binary.name} with the code between them; record branch "
            "stacks (perf record -b) or Intel PT, as docs/trace.md says"
        )
    broken = sum(path.broken for path in paths.values())
    if broken:
        logging.warning(
            "%s: left out %d impossible stretches between two branches (the code changed while it "
            "ran, or this is another binary)",
            recording,
            broken,
        )
    description = TraceDescription(
        binary.name, build_id(binary), (binary.name,), tool, fragments=True
    )
    with new_trace(output, description, table) as stream:
        for number, ((pid, tid), path) in enumerate(paths.items()):
            write_blocks(stream, [path.numbers()], number=number, ends=True, pid=pid, tid=tid)
    return Trace.load(output, quiet=True)


def _fragments(recording: Path, binary: Path, table: BlockTable) -> _BlockPath:
    """Returns the blocks of all branch stacks of one perf event."""
    paths: dict[str, _BlockPath] = defaultdict(lambda: _BlockPath(table))

    def add(event: str, branches: list[StackBranch]) -> None:
        path = paths[event]
        # A stretch in other code has no blocks to list, and the chain continues after it.
        for older, newer in itertools.pairwise(reversed(branches)):
            if older.target is not None and newer.source is not None:
                path.add_range(older.target, newer.source)
        path.end_chain()

    read_recording(recording, binary, add)
    # Stacks of several events describe the same run, so one event is enough. Stacks of mispredicts,
    # for example, hardly cover the other code.
    usable = [path for event, path in paths.items() if unit_of(event)]
    if paths and not usable:
        raise TraceError(
            f"{recording}: its branch stacks are of {', '.join(sorted(paths))}, which do not show "
            "how often code was executed, or are unknown events; record stacks of cycles or taken "
            "branches, as docs/trace.md says"
        )
    return max(usable, key=lambda path: path.chains, default=_BlockPath(table))


def _pt_streams(
    recording: Path, binary: Path, table: BlockTable
) -> dict[tuple[int, int], _BlockPath] | None:
    """Returns the blocks of each (process, thread); None when the recording is no Intel PT text."""
    try:
        if is_perf_data(recording):
            return None
        if not any(_PT_BRANCH.match(line) for line in input_lines(recording)):
            return None
        return _read_pt(input_lines(recording), binary, table, recording)
    except OSError as error:
        raise TraceError(f"{recording}: cannot be read: {error.strerror}") from error


def _read_pt(
    lines: Iterable[str], binary: Path, table: BlockTable, recording: Path
) -> dict[tuple[int, int], _BlockPath]:
    mappings = Mappings(binary, recorded_in_text(recording, binary))
    paths: dict[tuple[int, int], _BlockPath] = defaultdict(lambda: _BlockPath(table))
    # Target of each thread's last branch; None in other code.
    last_target: dict[tuple[int, int], int | None] = {}
    for number, line in enumerate(lines, 1):
        branch = _PT_BRANCH.match(line)
        if branch is None:
            if "instruction trace error" in line:
                # The decoder lost an unknown number of branches.
                last_target.clear()
                for path in paths.values():
                    path.end_chain()
            else:
                read_event(line, mappings, Script(), f"{recording}:{number}")
            continue
        thread = int(branch["pid"]), int(branch["tid"])
        source, target = (
            mappings.link_time(thread[0], int(branch[end], 16)) for end in ("source", "target")
        )
        start = last_target.get(thread)
        if start is not None and source is not None:
            paths[thread].add_range(start, source)
        last_target[thread] = target
    return dict(sorted(paths.items()))
