# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of real programs that are recorded, profiled and timed, part by part."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.common import profiled, traced
from benchmarks.parts import PartsError, RunParts, executed
from benchmarks.programs.workloads import COUNTED
from benchmarks.timing import SEGMENTS, Floats, Rounds, Stopwatch, run_rounds
from compiler_opt_perf.binary.disassembly import MachineCode
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.blocks.graphs import PMU_INPUTS
from compiler_opt_perf.blocks.profile_inputs import ProfileInputs
from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS, Context
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.timing import processor_seconds
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.trace_file import Trace

_FLAGS = ("-O2", *PROFILING_FLAGS.split(), *REPLAY_FLAGS, "-march=x86-64-v2")
_CHAIN = Path(__file__).with_name("chain.c")
_CHAIN_THOUSANDS = 300_000


def build_chain(path: Path) -> None:
    """Builds the chain of dependent additions, whose time tells the length of a core cycle."""
    run_command([stock_tool("clang"), "-O2", _CHAIN, "-o", path])


@dataclass(frozen=True)
class Timed:
    """What was measured of a program.

    Attributes:
      rounds: timed runs; each `beside` is the time of a chain of _CHAIN_THOUSANDS cycles.
      faults: [moments] pages that the system had given the program by each moment.
      single: the run counts as one part, because its moments depend on the time.
    """

    rounds: Rounds
    faults: list[float]
    single: bool = False

    @property
    def part_seconds(self) -> Floats:
        """[P] the fastest time of each part."""
        fastest: Floats = np.array(self.rounds.seconds)[:, 0].min(axis=0)
        return fastest.sum(keepdims=True) if self.single else fastest

    @property
    def moments(self) -> int:
        """How many moments a run has; 0 for any number."""
        return 0 if self.single else self.rounds.moments

    @property
    def boundaries(self) -> list[int]:
        """[P + 1] the moments that separate the parts."""
        return [0, -1] if self.single else self.rounds.boundaries

    @property
    def system(self) -> float:
        """The kernel's share of processor time."""
        return self.rounds.system_s / self.rounds.whole_s

    @property
    def seconds(self) -> float:
        """User time of a run of the fastest parts."""
        return float(self.part_seconds.sum()) * (1 - self.system)

    @property
    def hertz(self) -> float:
        """Core cycles of a second."""
        return 1000 * _CHAIN_THOUSANDS / min(self.rounds.beside)

    def as_one(self) -> "Timed":
        """The same run as one part."""
        return replace(self, single=True)


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
        self.workload.build(self.folder, _FLAGS)

    def record(self) -> Context:
        """Records and profiles a run; returns what evaluators need."""
        inputs = {**self.workload.run_inputs(), "stopwatch": sha256(SEGMENTS)}
        with Stopwatch() as stopwatch:
            run = (self.binary, self.workload.arguments, self.folder, inputs)
            windows, profile = traced(*run, stopwatch.library), profiled(*run)
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
        """Runs the program until there are `rounds` rounds."""

        def chain_seconds() -> float:
            idle = processor_seconds([chain, "0"], processor)
            return processor_seconds([chain, str(_CHAIN_THOUSANDS)], processor) - idle

        def faults() -> list[float]:
            with Stopwatch() as stopwatch:
                argv: list[str | Path] = [self.binary, *self.workload.arguments]
                return [float(one) for one in stopwatch.faults(argv, processor)]

        inputs = self.workload.run_inputs()
        measured = run_rounds(
            self.folder / "rounds.json",
            {self.name: [self.binary]},
            self.workload.arguments,
            inputs,
            rounds,
            processor,
            label=self.name,
            beside=chain_seconds,
        )
        inputs |= {"binary": sha256(self.binary), "stopwatch": sha256(SEGMENTS)}
        found = memo(self.folder / "faults.json", inputs, list[float], faults)
        return Timed(measured, found)

    def parts(self, context: Context, timed: Timed) -> RunParts:
        """Divides the recorded run into the timed parts.

        Raises:
          PartsError: the moments of a run depend on the time.
        """
        assert context.profile is not None
        if timed.moments and len(timed.faults) != timed.moments:
            raise PartsError(f"{self.name}: moments depend on the time")
        trace = Trace.load(self._trace)
        found = executed(trace, self._moments, timed.boundaries, timed.moments)
        table, machine = trace.table, MachineCode.read(self.binary)
        numbers = np.flatnonzero(found.counts.sum(axis=0))
        places = [
            (address, machine.content(address, address + size))
            for address, size in zip(
                table.address[numbers].tolist(), table.size[numbers].tolist(), strict=True
            )
        ]
        known = ProfileInputs(context.profile, self.binary, places)
        # [B, PMU inputs]; NaN where nothing is known.
        sums = np.array([np.nansum(known.block_rows(*place), axis=0) for place in places])
        l1_misses, l3_misses = (sums[:, PMU_INPUTS.index(name)] for name in ("l1_miss", "l3_miss"))
        return RunParts(
            blocks=[(table.names[table.function[n]], int(table.block_id[n])) for n in numbers],
            codes=[code for _, code in places],
            l1_misses=l1_misses,
            l3_misses=l3_misses,
            executions=found.counts[:, numbers].astype(np.float64),
            seconds=timed.part_seconds,
            faults=np.diff(np.array(timed.faults)[timed.boundaries]),
            elsewhere=found.elsewhere.astype(np.float64),
            mispredicted=found.mispredicted.astype(np.float64),
            taken=found.taken.astype(np.float64),
        )
