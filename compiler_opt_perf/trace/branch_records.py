# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traces of real hardware: from branch records (LBR, BRS) and Intel PT, as perf prints them.

Between two taken branches that follow each other, everything from the first one's target to the
second one's own address was executed: each block that begins there is listed.
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
from compiler_opt_perf.profile.perf_events import unit_of
from compiler_opt_perf.profile.perf_mappings import Mappings
from compiler_opt_perf.profile.perf_script import Hop, Script, read_event
from compiler_opt_perf.run.files import atomic_write, input_lines
from compiler_opt_perf.trace.block_table import BlockTable, read_block_table
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.trace_file import (
    SUFFIX,
    Trace,
    TraceDescription,
    write_blocks,
    write_end,
    write_start,
)

# A longer stretch without a taken branch is two that were glued together.
_LONGEST_RANGE = 1 << 16
# perf script --itrace=b -F pid,tid,event,ip,addr: "1234/1235  branches:u:  401136 => 401020".
# Address 0 stands for code that was not traced.
_PT_BRANCH = re.compile(
    r"^\s*(?P<pid>\d+)/(?P<tid>\d+)\s+(?:\d+\s+)?branches\S*\s+(?:.*?\s)??"
    r"(?P<source>[0-9a-f]+)\s+=>\s+(?P<target>[0-9a-f]+)\s*$"
)
PT_COMMAND = "perf script --itrace=b --show-mmap-events --show-task-events -F pid,tid,event,ip,addr"


class _Path:
    """The blocks along chains of taken branches.

    Attributes:
      found: their numbers; gaps between the chains.
      chains: how many chains there are.
      broken: how many stretches between branches make no sense.
    """

    def __init__(self, table: BlockTable):
        self._addresses, self._numbers = table.starts()
        self._gap = len(table)
        self.found = array("I")
        self.chains = 0
        self.broken = 0

    def executed(self, start: int, last: int) -> None:
        """Adds what was executed from `start` up to the branch at `last`."""
        if not 0 <= last - start < _LONGEST_RANGE:
            self.broken += 1
            self.gap()
            return
        begin = np.searchsorted(self._addresses, np.uint64(start), "left")
        end = np.searchsorted(self._addresses, np.uint64(last), "right")
        if begin < end:
            self.found.frombytes(self._numbers[begin:end].tobytes())

    def gap(self) -> None:
        """What follows does not follow directly."""
        self.chains += 1
        if self.found and self.found[-1] != self._gap:
            self.found.append(self._gap)

    def numbers(self) -> Numbers:
        """The blocks and gaps that were found."""
        return np.frombuffer(self.found, np.uint32)


def import_recording(recording: Path, binary: Path, output: Path) -> Trace:
    """Writes the trace that a recording of perf holds of one binary.

    Of branch records it is a trace of fragments: each sample tells of some tens of branches, and
    a gap separates it from the next.

    Args:
      recording: a perf.data with branch stacks, or the text that `perf script` makes of one, or
        the text that it makes of an Intel PT recording (PT_COMMAND).
      binary: what ran, with an address map and a build-id.
      output: NAME.bbtrace.

    Raises:
      TraceError: the recording has no branches in the binary.
      BinaryError: the binary has no address map.
      PmuError: the recording cannot be read, or is not of this binary.
      FileWriteError: the disk is full, or the output folder cannot be written.
    """
    if output.suffix != SUFFIX:
        raise TraceError(f"{output}: the name of a block trace must end with {SUFFIX}")
    table = read_block_table(binary)
    paths, tool = _pt_streams(recording, binary, table), "perf, Intel PT"
    if paths is None:
        paths, tool = {(0, 0): _fragments(recording, binary, table)}, "perf, branch records"
    if not any(path.found for path in paths.values()):
        raise TraceError(
            f"{recording}: no branches in {binary.name} with the code between them; record branch "
            "stacks (perf record -b) or Intel PT, as docs/trace.md says"
        )
    broken = sum(path.broken for path in paths.values())
    if broken:
        logging.warning(
            "%s: %d stretches between two branches make no sense and are left out (code changed "
            "while it ran, or the binary is another)",
            recording,
            broken,
        )
    description = TraceDescription(
        binary.name, build_id(binary), (binary.name,), tool, fragments=True
    )
    with atomic_write(output) as temporary:
        with temporary.open("wb") as stream:
            write_start(stream, description, table)
            for number, ((pid, tid), path) in enumerate(paths.items()):
                write_blocks(stream, [path.numbers()], number=number, ends=True, pid=pid, tid=tid)
        write_end(temporary)
    return Trace.load(output, quiet=True)


def _fragments(recording: Path, binary: Path, table: BlockTable) -> _Path:
    """The blocks of all branch stacks, those of one perf event only."""
    paths: dict[str, _Path] = defaultdict(lambda: _Path(table))

    def add(event: str, hops: list[Hop]) -> None:
        path = paths[event]
        # Of a stretch in other code there is nothing to list, and the chain goes on after it.
        for older, newer in itertools.pairwise(reversed(hops)):
            if older.target is not None and newer.source is not None:
                path.executed(older.target, newer.source)
        path.gap()

    read_recording(recording, binary, add)
    # Several events may have been sampled with stacks: they tell of the same run. Those taken at
    # mispredicts, say, show too little of the rest.
    usable = [path for event, path in paths.items() if unit_of(event)]
    if paths and not usable:
        raise TraceError(
            f"{recording}: its branch stacks are of {', '.join(sorted(paths))}: how often code was "
            "executed is not told by these, or it is not known what they count; record stacks of "
            "cycles or taken branches, as docs/trace.md says"
        )
    return max(usable, key=lambda path: path.chains, default=_Path(table))


def _pt_streams(
    recording: Path, binary: Path, table: BlockTable
) -> dict[tuple[int, int], _Path] | None:
    """What each process and thread executed; None when the recording is no text of Intel PT."""
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
) -> dict[tuple[int, int], _Path]:
    mappings = Mappings(binary, recorded_in_text(recording, binary))
    paths: dict[tuple[int, int], _Path] = defaultdict(lambda: _Path(table))
    # Where each thread went last; None in other code.
    at: dict[tuple[int, int], int | None] = {}
    for number, line in enumerate(lines, 1):
        branch = _PT_BRANCH.match(line)
        if branch is None:
            if "instruction trace error" in line:
                # The decoder lost its way, and does not say for how long.
                at.clear()
                for path in paths.values():
                    path.gap()
            else:
                read_event(line, mappings, Script(), f"{recording}:{number}")
            continue
        thread = int(branch["pid"]), int(branch["tid"])
        source, target = (
            mappings.link_time(thread[0], int(branch[end], 16)) for end in ("source", "target")
        )
        start = at.get(thread)
        if start is not None and source is not None:
            paths[thread].executed(start, source)
        at[thread] = target
    return dict(sorted(paths.items()))
