# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of real programs that are recorded, profiled and timed, part by part."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType

import numpy as np

from benchmarks.common import recorded
from benchmarks.parts import Executed, executed
from benchmarks.programs.workloads import COUNTED
from benchmarks.timing import SEGMENTS, Floats, Rounds, Stopwatch, run_rounds
from compiler_opt_perf.binary.disassembly import MachineCode
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.blocks.graphs import PMU_INPUTS
from compiler_opt_perf.blocks.measure_blocks import present_cpu
from compiler_opt_perf.blocks.profile_inputs import ProfileInputs
from compiler_opt_perf.blocks.run_parts import (
    SUFFIX,
    Head,
    Part,
    PartsError,
    RunBlock,
    RunParts,
    read_parts,
    write_parts,
)
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
            windows, profile = recorded(
                self.binary, self.workload.arguments, self.folder, inputs, stopwatch.library
            )
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
        """Writes the parts of the run to a file beside the folder; returns them.

        Raises:
          PartsError: the moments of a run depend on the time.
        """
        assert context.profile is not None
        profile, path = context.profile, self.folder.with_suffix(SUFFIX)
        inputs = {
            "recorded": [sha256(self._trace), sha256(self._moments)],
            "profile": sha256(context.profile),
            "timed": sha256(self.folder / "rounds.json"),
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
        """The executed blocks with their code and PMU data, and the parts with their times."""
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
        seconds = timed.part_seconds.tolist()
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
            rounds=len(timed.rounds.seconds),
            blocks=len(blocks),
            parts=len(parts),
        )
        return RunParts(head, tuple(blocks), tuple(parts))
