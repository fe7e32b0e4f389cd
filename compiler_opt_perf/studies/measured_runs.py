# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of real programs that are recorded, profiled and timed, part by part."""

import math
import resource
from functools import partial
from pathlib import Path
from types import NoneType

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.binary.disassembly import MachineCode
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.blocks.graphs import PMU_INPUTS
from compiler_opt_perf.blocks.measure_blocks import present_cpu
from compiler_opt_perf.blocks.profile_inputs import ProfileInputs
from compiler_opt_perf.blocks.run_parts import (
    SUFFIX,
    Executed,
    Head,
    Part,
    PartsError,
    RunBlock,
    RunParts,
    executed,
    read_parts,
    write_parts,
)
from compiler_opt_perf.corpus.programs import source_checksums
from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS, Context
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo, note, recall
from compiler_opt_perf.run.timing import SEGMENTS, Stopwatch, boundaries, processor_seconds
from compiler_opt_perf.studies.common import StudyError, forward_times
from compiler_opt_perf.studies.workloads import COUNTED
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.qemu import SyncPoints, record
from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.windows import write_windows

_FLAGS = ("-O2", *PROFILING_FLAGS.split(), *REPLAY_FLAGS, "-march=x86-64-v2")
_WINDOW = 9
_SHORTEST_PART_S = 0.001
_CHAIN = Path(__file__).with_name("chain.c")
_CHAIN_THOUSANDS = 300_000


def build_chain(path: Path) -> None:
    """Builds the chain of dependent additions, by whose time core cycles are told."""
    run_command([stock_tool("clang"), "-O2", _CHAIN, "-o", path])


class Timed(msgspec.Struct):
    """What was measured of a program.

    Attributes:
      moments, boundaries: those of a run, and of them the ends of its parts.
      faults: pages that the system had given the program by each moment.
      parts: [rounds, parts] seconds.
      system_s, whole_s: processor time of the system in all rounds, and all processor time.
      chain_s: [rounds] seconds of _CHAIN_THOUSANDS cycles, beyond those of a run of none.
    """

    moments: int = 0
    boundaries: list[int] = []
    faults: list[float] = []
    parts: list[list[float]] = []
    system_s: float = 0.0
    whole_s: float = 0.0
    chain_s: list[float] = []

    @property
    def seconds(self) -> float:
        """User time of a run of the fastest parts."""
        fastest = float(np.min(np.array(self.parts), axis=0).sum())
        return fastest * (1 - self.system_s / self.whole_s)

    @property
    def hertz(self) -> float:
        """Core cycles of a second."""
        return 1000 * _CHAIN_THOUSANDS / min(self.chain_s)

    def as_one(self) -> "Timed":
        """The same, of a run whose moments depend on the time: with one part."""
        fastest = float(np.min(np.array(self.parts), axis=0).sum())
        return msgspec.structs.replace(self, moments=0, boundaries=[0, -1], parts=[[fastest]])


class MeasuredRun:
    """A run of one program, in a folder of its own."""

    def __init__(self, name: str, output: Path, toolchain: Toolchain):
        self.name = name
        self.folder = output / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.workload = COUNTED[name](self.folder)
        self.toolchain = toolchain
        self.binary = self.folder / self.workload.program.name

    def build(self) -> None:
        """Builds the program."""
        inputs = {
            "options": (*_FLAGS, *self.workload.flags),
            **source_checksums(self.workload.program, self.workload.tree),
            "clang": sha256(stock_tool("clang").resolve()),
        }

        def build() -> None:
            self.workload.build(self.folder, _FLAGS)

        memo(self.folder / "built.json", inputs, NoneType, build, [self.binary])

    def record(self) -> Context:
        """Records and profiles a run; returns what evaluators need."""
        arguments = list(self.workload.arguments)
        windows, profile = self.folder / "run.bbwindows", self.folder / "run.pmu.json"
        inputs = {"binary": sha256(self.binary), "arguments": arguments, "window": _WINDOW}
        stopwatch = {"stopwatch": sha256(SEGMENTS)}

        def traced() -> None:
            with Stopwatch() as stopwatch:
                points = SyncPoints(stopwatch.library, self._moments)
                trace = record(self.binary, arguments, self._trace, sync_points=points)
            write_windows(trace, _WINDOW, windows)

        def profiled() -> None:
            collect(self.binary, arguments, profile)

        files = [windows, self._trace, self._moments]
        memo(self.folder / "traced.json", inputs | stopwatch, NoneType, traced, files)
        memo(self.folder / "profiled.json", inputs, NoneType, profiled, [profile])
        return Context(
            tool=self.toolchain.trace_cost,
            trace=windows,
            profile=profile,
            threads=1,
            cache=self.folder / "costs",
        )

    @property
    def _trace(self) -> Path:
        return self.folder / "run.bbtrace"

    @property
    def _moments(self) -> Path:
        return self.folder / "run.moments"

    def measure(self, rounds: int, processor: int, chain: Path) -> Timed:
        """Runs the program until it has run so many times."""
        argv = [str(self.binary), *self.workload.arguments]
        inputs = {"binary": sha256(self.binary), "arguments": argv, "stopwatch": sha256(SEGMENTS)}
        path = self.folder / "timed.json"
        timed = recall(path, inputs, Timed) or Timed()
        with Stopwatch() as stopwatch:
            while len(timed.parts) < rounds:
                idle = processor_seconds([chain, "0"], processor)
                busy = processor_seconds([chain, str(_CHAIN_THOUSANDS)], processor)
                # Of the last run, which is the one that counts.
                system: list[float] = []
                run = partial(_run, stopwatch, argv, processor, system)
                times = forward_times(run, self.name)
                if not timed.boundaries:
                    timed.moments = len(times)
                    timed.faults = stopwatch.faults(argv, processor).tolist()
                    timed.boundaries = boundaries(times, _SHORTEST_PART_S).tolist()
                if len(times) != timed.moments:
                    raise StudyError(f"{self.name}: computes something else than in other runs")
                timed.chain_s.append(busy - idle)
                timed.system_s += system[-1]
                timed.whole_s += float(times[-1] - times[0])
                timed.parts.append(np.round(np.diff(times[timed.boundaries]), 7).tolist())
                note(path, inputs, Timed, timed)
        return timed

    def parts(self, context: Context, timed: Timed) -> RunParts:
        """The parts of the run, which are written to a file beside the folder."""
        assert context.profile is not None
        profile, path = context.profile, self.folder.with_suffix(SUFFIX)
        inputs = {
            "recorded": [sha256(self._trace), sha256(self._moments)],
            "profile": sha256(context.profile),
            "timed": sha256(self.folder / "timed.json"),
            "moments": timed.moments,
        }
        if timed.moments and len(timed.faults) != timed.moments:
            raise PartsError(f"{self.name}: moments depend on the time")

        def divided() -> None:
            trace, ends = Trace.load(self._trace), timed.boundaries
            found = executed(trace, self._moments, ends, timed.moments)
            write_parts(path, self._described(trace, found, timed, profile))

        memo(self.folder / "divided.json", inputs, NoneType, divided, [path])
        return read_parts(path)

    def _described(self, trace: Trace, found: Executed, timed: Timed, profile: Path) -> RunParts:
        """What was executed, with code, PMU data and times."""
        table, machine = trace.table, MachineCode.read(self.binary)
        numbers = np.flatnonzero(found.counts.sum(axis=0))
        places = [
            (address, machine.content(address, address + size))
            for address, size in zip(
                table.address[numbers].tolist(), table.size[numbers].tolist(), strict=True
            )
        ]
        known = ProfileInputs(profile, self.binary, places)
        blocks = []
        for number, (address, code) in zip(numbers.tolist(), places, strict=True):
            columns = known.of_block(address, code).T.tolist()
            pmu = {
                name: tuple(None if math.isnan(value) else round(value, 6) for value in values)
                for name, values in zip(PMU_INPUTS, columns, strict=True)
                if not all(map(math.isnan, values))
            }
            blocks.append(
                RunBlock(
                    function=table.names[table.function[number]],
                    id=int(table.block_id[number]),
                    address=address,
                    code=code.hex(),
                    pmu=pmu,
                )
            )
        seconds = np.min(np.array(timed.parts), axis=0).tolist()
        faults = np.diff(np.array(timed.faults)[timed.boundaries]).astype(int).tolist()
        parts = []
        for row, counts in enumerate(found.counts[:, numbers]):
            executed_here = np.flatnonzero(counts)
            parts.append(
                Part(
                    seconds=seconds[row],
                    faults=faults[row],
                    elsewhere=int(found.elsewhere[row]),
                    mispredicted=int(found.mispredicted[row]),
                    taken=int(found.taken[row]),
                    executed=tuple((int(n), int(counts[n])) for n in executed_here),
                )
            )
        head = Head(
            program=self.name,
            build_id=trace.description.build_id,
            command=tuple(self.workload.arguments),
            cpu=present_cpu(),
            hertz=timed.hertz,
            rounds=len(timed.parts),
            blocks=len(blocks),
            parts=len(parts),
        )
        return RunParts(head, tuple(blocks), tuple(parts))


def _run(
    stopwatch: Stopwatch, argv: list[str], processor: int, system: list[float]
) -> npt.NDArray[np.float64]:
    """Runs a program once; adds its seconds in the kernel to `system`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = stopwatch.times(argv, processor)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    system.append(after.ru_stime - before.ru_stime)
    return times
