# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges predicted cycles of whole runs by measured time, and what a correction makes of them.

Real programs, each run once to be recorded and profiled, and then to be timed: the fastest times of
the parts of its runs, less the system's share, in cycles of a chain of dependent additions that is
timed in turn with it. Evaluators of cycles and a learned model of blocks predict the same run; a
correction is fitted on the other programs. Goes on where it stopped; writes OUTPUT/PROGRAM.json.
"""

import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType

import msgspec
import numpy as np

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.programs import source_checksums
from compiler_opt_perf.cost.cpu_files import llvm_name
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context
from compiler_opt_perf.cost.timing import SEGMENTS, Stopwatch, boundaries, processor_seconds
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.files import sha256, write_json
from compiler_opt_perf.execution.json_text import convert
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.execution.memo import memo, note, recall
from compiler_opt_perf.learned.correction import (
    BLOCKS,
    INPUTS,
    Correction,
    Run,
    fit,
    inputs_of,
    left_out,
    write_correction,
)
from compiler_opt_perf.learned.model import CostModel
from compiler_opt_perf.learned.replay import LearnedReplay
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.studies.common import StudyError, saved
from compiler_opt_perf.studies.workloads import COUNTED
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.traces.qemu import record
from compiler_opt_perf.traces.windows import write_windows

#: LMDB's time is the system's.
PROGRAMS = tuple(name for name in COUNTED if name != "lmdb")
ROUNDS = 30
_FLAGS = ("-O2", *PROFILING_FLAGS.split(), *REPLAY_FLAGS, "-march=x86-64-v2")
_WINDOW = 9
_SHORTEST_PART_S = 0.001
_FACTS = (
    *("program", "million cycles measured", "GHz", "of the system", "instructions elsewhere"),
    "without prediction",
)
_CHAIN = Path(__file__).with_suffix(".c")
_CHAIN_THOUSANDS = 300_000
#: Of the evaluators, the one whose cycles are corrected besides the learned model's.
SCOREBOARD = "mca-pmu"
_EVALUATED = ("count", "mca", SCOREBOARD)


class Timed(msgspec.Struct):
    """What was measured of a program.

    Attributes:
      moments, boundaries: those of a run, and of them the ends of its parts.
      parts: [rounds, parts] seconds.
      system_s, whole_s: processor time of the system in all rounds, and all processor time.
      chain_s: [rounds] seconds of _CHAIN_THOUSANDS cycles, beyond those of a run of none.
    """

    moments: int = 0
    boundaries: list[int] = []
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


class Result(msgspec.Struct, frozen=True):
    """What is known of a program.

    Attributes:
      cycles: measured, in user mode.
      gigahertz: core cycles of a nanosecond.
      system: share of processor time that is the system's.
      elsewhere: share of all instructions that are in other objects, such as the C library.
      refused: share of executions of pieces of blocks without prediction.
      predicted: by evaluator.
      blocks: by evaluator with a correction, what it says of the code alone.
      inputs: of corrections, by name.
    """

    cycles: float
    gigahertz: float
    system: float
    elsewhere: float
    refused: float
    predicted: dict[str, float]
    blocks: dict[str, float]
    inputs: dict[str, float]


class Study:
    """One program's study, in a folder of its own."""

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

        def recorded() -> None:
            trace = record(self.binary, arguments, self.folder / "run.bbtrace")
            write_windows(trace, _WINDOW, windows)
            collect(self.binary, arguments, profile)

        memo(self.folder / "recorded.json", inputs, NoneType, recorded, [windows, profile])
        return Context(
            tool=self.toolchain.trace_cost,
            trace=windows,
            profile=profile,
            threads=1,
            cache=self.folder / "costs",
        )

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
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                times = stopwatch.times(argv, processor)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if (np.diff(times) < 0).any():
                    continue
                if not timed.boundaries:
                    timed.moments = len(times)
                    timed.boundaries = boundaries(times, _SHORTEST_PART_S).tolist()
                if len(times) != timed.moments:
                    raise StudyError(f"{self.name}: computes something else than in other runs")
                timed.chain_s.append(busy - idle)
                timed.system_s += after.ru_stime - before.ru_stime
                timed.whole_s += float(times[-1] - times[0])
                timed.parts.append(np.round(np.diff(times[timed.boundaries]), 7).tolist())
                note(path, inputs, Timed, timed)
        return timed

    def result(self, context: Context, learned: LearnedReplay, timed: Timed) -> Result:
        """Predicts the run with every evaluator."""
        costs = {name: EVALUATORS[name].cost([self.binary], context) for name in _EVALUATED}
        costs[learned.name] = own = learned.cost([self.binary], context)
        inputs = inputs_of(own, context)
        pieces, elsewhere = own.report["pieces"], inputs["code elsewhere"]
        return Result(
            cycles=timed.seconds * timed.hertz,
            gigahertz=timed.hertz / 1e9,
            system=timed.system_s / timed.whole_s,
            elsewhere=elsewhere / (elsewhere + costs["count"].total),
            refused=sum(pieces["refused"].values()) / pieces["executions"],
            predicted={name: cost.total for name, cost in costs.items()},
            blocks={
                learned.name: own.total,
                SCOREBOARD: costs[SCOREBOARD].report["cycles"]["execution"],
            },
            inputs=inputs,
        )


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    model: CostModel,
    *,
    cpu: Path,
    rounds: int,
    processor: int,
) -> str:
    """Studies some of the programs; returns tables of all results in the folder, in Markdown.

    Args:
      cpu: CPU file, of a CPU that the model knows.
      rounds: how often each program runs to be timed.
      processor: number of the processor that runs are bound to.

    Raises:
      StudyError: a program's runs differ.
      LearnedError: the model does not know the CPU.
    """
    output = output.resolve()
    learned = LearnedReplay(model, llvm_name(cpu))
    output.mkdir(parents=True, exist_ok=True)
    chain = output / "chain"
    run_command([stock_tool("clang"), "-O2", _CHAIN, "-o", chain])
    for name in programs:
        one = Study(name, output, toolchain)
        one.build()
        context = replace(one.record(), cpu=cpu)
        timed = one.measure(rounds, processor, chain)
        write_json(
            output / f"{name}.json", msgspec.to_builtins(one.result(context, learned, timed))
        )
    results = {
        name: convert(found, Result, name) for name, found in saved(output, PROGRAMS).items()
    }
    corrected = {name: corrections(results, name) for name in (learned.name, SCOREBOARD)}
    weights = corrected[learned.name].weights
    write_correction(
        output / "correction.json",
        Correction(
            evaluator=learned.name, mcpu=learned.cpu, weights=weights, programs=tuple(results)
        ),
    )
    return tables(results, corrected)


@dataclass(frozen=True)
class Corrected:
    """What a correction makes of one evaluator's cycles.

    Attributes:
      left_out: cycles by program, by weights that were fitted to the others.
      weights: fitted to all programs.
    """

    left_out: Mapping[str, float]
    weights: dict[str, float]


def corrections(results: Mapping[str, Result], evaluator: str) -> Corrected:
    """Fits a correction of an evaluator's cycles."""
    runs = [
        Run(name, {**one.inputs, BLOCKS: one.blocks[evaluator]}, one.cycles)
        for name, one in results.items()
    ]
    found = left_out(runs)
    return Corrected(dict(zip(results, found.tolist(), strict=True)), fit(runs))


def tables(results: Mapping[str, Result], corrected: Mapping[str, Corrected]) -> str:
    """Predicted by measured cycles, and the weights of the corrections, in Markdown."""
    levels: dict[str, dict[str, float]] = {}
    for name, one in results.items():
        row = {way: cycles / one.cycles for way, cycles in one.predicted.items()}
        for way, found in corrected.items():
            row[f"{way}, corrected"] = found.left_out[name] / one.cycles
        levels[name] = row
    ways = list(next(iter(levels.values())))
    lines = [
        "| " + " | ".join([*_FACTS, *ways]) + " |",
        "|---" * (len(_FACTS) + len(ways)) + "|",
    ]
    for name, one in results.items():
        cells = [name, f"{one.cycles / 1e6:,.1f}", f"{one.gigahertz:.2f}"]
        cells += [f"{share:.1%}" for share in (one.system, one.elsewhere, one.refused)]
        cells += [f"{levels[name][way]:.2f}" for way in ways]
        lines.append("| " + " | ".join(cells) + " |")
    table = np.array([[row[way] for way in ways] for row in levels.values()])
    for what, values in (
        ("mean error", np.abs(table - 1).mean(axis=0)),
        ("largest / smallest", table.max(axis=0) / table.min(axis=0)),
    ):
        shown = [f"{value:.1%}" if what == "mean error" else f"{value:.2f}" for value in values]
        lines.append("| " + " | ".join([what, *[""] * (len(_FACTS) - 1), *shown]) + " |")
    lines += [
        "",
        "| weight of | " + " | ".join(corrected) + " |",
        "|---" * (1 + len(corrected)) + "|",
    ]
    for name in INPUTS:
        weights = [f"{one.weights[name]:.3f}" for one in corrected.values()]
        lines.append("| " + " | ".join([name, *weights]) + " |")
    return "\n".join(lines) + "\n"
