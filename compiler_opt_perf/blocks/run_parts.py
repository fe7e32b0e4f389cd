# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a run: which blocks each of them executed, and how long it took (docs/formats.md).

A run is divided at moments that a preloaded library tells of (timing.Stopwatch), of a run that is
timed and of one that is recorded alike. Single blocks can be measured, but not in the company that
they have in a run; a sum over the blocks of a part can be compared with what the part took.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.blocks.block_file import Cpu, Known, Positive, encoded
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import atomic_write, input_lines
from compiler_opt_perf.run.json_text import Count, FieldError, decode
from compiler_opt_perf.trace.native import BranchPredictor
from compiler_opt_perf.trace.qemu import read_sync_points
from compiler_opt_perf.trace.trace_file import Trace

FORMAT = "compiler-opt-perf/run-parts"
VERSION = 1
SUFFIX = ".parts"

Floats = npt.NDArray[np.float64]


class PartsError(UserError):
    """A run that has no parts, or a file that cannot be read."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts are of.

    Attributes:
      program: its name.
      build_id: of the binary, hexadecimal.
      command: arguments of the run.
      cpu: on which it was timed.
      hertz: core cycles of a second.
      rounds: how often the run was timed; the fastest time of each part is told.
      blocks, parts: how many follow.
    """

    format: str = FORMAT
    version: int = VERSION
    program: str
    build_id: str
    command: tuple[str, ...]
    cpu: Cpu
    hertz: Positive
    rounds: Count
    blocks: Count
    parts: Count


class RunBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block that the run executed.

    Attributes:
      function, id, address: where it is; the id is the compiler's number of it in the function.
      code: its bytes, with the jump, call or return that ends it, in hexadecimal digits.
      pmu: what a profile of the run tells of its instructions, one value each, by name, as in files
        of measured blocks; None where it is not known.
    """

    function: str
    id: Count
    address: Count
    code: str
    pmu: dict[str, tuple[Known | None, ...]] = {}

    def __post_init__(self) -> None:
        try:
            bytes.fromhex(self.code)
        except ValueError:
            raise FieldError("code", "expected hexadecimal digits") from None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part.

    Attributes:
      seconds: of processor time, the system's too; the least of all rounds.
      faults: pages that the system had to give the program.
      elsewhere: instructions executed outside of the binary.
      mispredicted: branches that a simulated predictor did not foresee.
      taken: how often a block was followed by one that does not stand behind it.
      executed: executions by number of the block.
    """

    seconds: Known
    faults: Count
    elsewhere: Count
    mispredicted: Count
    taken: Count
    executed: tuple[tuple[Count, Count], ...]


@dataclass(frozen=True)
class RunParts:
    """The parts of a run, P of them, and its blocks, B of them."""

    head: Head
    blocks: tuple[RunBlock, ...]
    parts: tuple[Part, ...]

    def column(self, name: str) -> Floats:
        """A field of the parts, [P]."""
        return np.array([getattr(one, name) for one in self.parts], np.float64)

    def executions(self) -> Floats:
        """How often each part executed each block, [P, B]."""
        counts = np.zeros((len(self.parts), len(self.blocks)))
        for row, one in zip(counts, self.parts, strict=True):
            for number, count in one.executed:
                row[number] = count
        return counts

    def known(self, name: str) -> Floats:
        """What an execution of each block has by the profile, [B]: 0 where nothing is known."""
        return np.array(
            [sum(value or 0.0 for value in block.pmu.get(name, ())) for block in self.blocks]
        )


class Executed(NamedTuple):
    """What parts of a recorded run executed; P parts, B blocks of the trace's table.

    Attributes:
      counts: [P, B] int64.
      elsewhere, mispredicted, taken: [P] int64, as in `Part`.
    """

    counts: npt.NDArray[np.int64]
    elsewhere: npt.NDArray[np.int64]
    mispredicted: npt.NDArray[np.int64]
    taken: npt.NDArray[np.int64]


def executed(trace: Trace, moments: Path, boundaries: Sequence[int], total: int) -> Executed:
    """Divides a trace.

    Args:
      moments: what was noted while it was recorded (traces.qemu).
      boundaries: numbers of the moments between which the parts lie, [P + 1]; what is before the
        first and after the last belongs to the parts beside.
      total: moments of the timed run; 0 for any number.

    Raises:
      PartsError: the recorded run had other moments, or several threads.
      TraceError: the trace is damaged.
    """
    noted = read_sync_points(moments)
    if total and len(noted) != total:
        raise PartsError(
            f"{trace.path}: {len(noted)} moments while it was recorded, {total} when it was timed: "
            "what the program does depends on the time"
        )
    if len(trace.streams) != 1:
        raise PartsError(f"{trace.path}: {len(trace.streams)} threads; expected one")
    (stream,) = trace.streams.values()
    places = noted["blocks"][list(boundaries)].astype(np.int64)
    places[0], places[-1] = 0, len(stream)
    outside = noted["elsewhere"][list(boundaries)].astype(np.int64)
    parts, blocks = len(places) - 1, len(trace.table)
    counts = np.zeros((parts, blocks), np.int64)
    mispredicted, jumps = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    predictor = BranchPredictor(trace.table)
    before, last = 0, None
    for number in range(parts):
        for piece in trace.part(stream, int(places[number]), int(places[number + 1])):
            counts[number] += np.bincount(piece, minlength=blocks)
            predictor.add(piece, starts=last is None)
            joined = piece if last is None else np.concatenate([[last], piece])
            jumps[number] += int(trace.table.jumps(joined[:-1], joined[1:]).sum())
            last = piece[-1]
        now = int(predictor.result()[:, [1, 3]].sum())
        mispredicted[number], before = now - before, now
    return Executed(counts, np.diff(outside), mispredicted, jumps)


def write_parts(path: Path, parts: RunParts) -> None:
    """Writes a file. Raises FileWriteError."""
    with atomic_write(path) as temporary:
        lines = (parts.head, *parts.blocks, *parts.parts)
        temporary.write_bytes(b"".join(encoded(one) for one in lines))


def read_parts(path: Path) -> RunParts:
    """Reads a file.

    Raises:
      PartsError: it cannot be read, is cut off, or counts executions of a block that it lacks.
      JsonError: a line is damaged.
    """
    try:
        lines = list(input_lines(path))
    except OSError as error:
        raise PartsError(f"{path}: cannot be read: {error.strerror}") from error
    head = decode(lines[0] if lines else "", Head, f"{path}:1", (FORMAT, VERSION))
    if len(lines) != 1 + head.blocks + head.parts:
        raise PartsError(
            f"{path}: has {len(lines)} lines; its first one says {head.blocks} blocks and "
            f"{head.parts} parts (truncated?)"
        )
    end = 1 + head.blocks
    blocks = [decode(line, RunBlock, f"{path}:{n}") for n, line in enumerate(lines[1:end], 2)]
    parts = []
    for number, line in enumerate(lines[end:], end + 1):
        one = decode(line, Part, f"{path}:{number}")
        if any(block >= head.blocks for block, _ in one.executed):
            raise PartsError(f"{path}:{number}: executes a block that the file lacks")
        parts.append(one)
    return RunParts(head, tuple(blocks), tuple(parts))
