# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How well are cycles of runs and of their parts predicted, and what do PMU data add?

Each program runs once to be recorded and profiled, and then to be timed by the protocol of
`timing`. A chain of dependent additions that is timed in turn with it tells the length of a cycle.
Evaluators and a learned model of blocks predict the run and its parts. A correction of their cycles
is fitted on the parts of the other programs: with PMU data, without, and with those of other parts.
A stopped benchmark goes on where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import iced_x86
import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from benchmarks.common import BenchmarkError, saved
from benchmarks.fitting import (
    FAULTS,
    PredictedRun,
    corrected,
    fit,
    inputs_of_parts,
    left_out,
    left_out_weights,
)
from benchmarks.measured_runs import MeasuredRun, Timed, build_chain
from benchmarks.parts import PartsError, RunParts
from benchmarks.programs.workloads import COUNTED
from benchmarks.results import Cell, Table
from compiler_opt_perf.blocks.cpu_files import llvm_name
from compiler_opt_perf.blocks.model import load
from compiler_opt_perf.blocks.neighbours import paired
from compiler_opt_perf.cost.correction import (
    BLOCKS,
    INPUTS,
    Correction,
    inputs_of,
    write_correction,
)
from compiler_opt_perf.cost.evaluator import EVALUATORS, Context
from compiler_opt_perf.cost.learned_replay import LearnedReplay
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.json_text import convert
from compiler_opt_perf.toolchain.installation import Toolchain

#: LMDB's time is the system's, and zstd has threads.
PROGRAMS = tuple(name for name in COUNTED if name not in ("lmdb", "zstd"))
ROUNDS = 30
#: The evaluator whose cycles are corrected besides those of the learned model.
SCOREBOARD = "mca-pmu"
#: The baseline of all models of blocks: instructions alone, _WIDTH in a cycle.
COUNT = "count"
_WIDTH = 4
_EVALUATED = (COUNT, "mca", SCOREBOARD)
#: The PMU data of which a correction knows.
WITHOUT_PMU, WITH_PMU, SHUFFLED = "no PMU data", "PMU data", "of other parts"
_PMU = ("mispredictions", "first-level misses", "last-level misses")
_FEWEST = 2
# Orders in which data of other parts are given.
_SEEDS = 5

Floats = npt.NDArray[np.float64]


class ProgramCycles(msgspec.Struct, frozen=True):
    """Measured and predicted cycles of a program's run.

    Attributes:
      cycles: measured, in user mode.
      gigahertz: core cycles of a nanosecond.
      system: the kernel's share of processor time.
      elsewhere: share of all instructions that are in other objects, such as the C library.
      refused: share of executions of pieces of blocks without prediction.
      predicted: cycles by evaluator.
      blocks: cycles of the code alone, by evaluator with a correction.
      inputs: of corrections, by name.
      parts: the parts of the run.
    """

    cycles: float
    gigahertz: float
    system: float
    elsewhere: float
    refused: float
    predicted: dict[str, float]
    blocks: dict[str, float]
    inputs: dict[str, float]
    parts: "Parts"


class Parts(msgspec.Struct, frozen=True):
    """Measured values of the parts of a run, one a part.

    Attributes:
      cycles: measured, with the kernel's.
      instructions: retired.
      inputs: of corrections, by evaluator.
    """

    cycles: list[float]
    instructions: list[float]
    inputs: dict[str, list[dict[str, float]]]

    def runs(self, program: str, evaluator: str) -> list[PredictedRun]:
        """The parts as what a correction is fitted to."""
        pairs = zip(self.inputs[evaluator], self.cycles, strict=True)
        return [PredictedRun(program, inputs, cycles) for inputs, cycles in pairs]


def predicted(
    binary: Path, context: Context, learned: LearnedReplay, timed: Timed, parts: RunParts
) -> ProgramCycles:
    """Predicts a run, and its parts, with every evaluator."""
    costs = {name: EVALUATORS[name].cost([binary], context) for name in _EVALUATED}
    costs[learned.name] = own = learned.cost([binary], context)
    inputs = inputs_of(own, context)
    pieces, elsewhere = own.report["pieces"], inputs["code elsewhere"]
    instructions = np.array(
        [sum(1 for _ in iced_x86.Decoder(64, code)) for code in parts.codes], float
    )
    by_block = {
        COUNT: instructions / _WIDTH,
        "mca": _of_blocks(costs["mca"].report, parts),
        SCOREBOARD: _of_blocks(costs[SCOREBOARD].report, parts),
        learned.name: _of_blocks(own.report, parts),
    }
    retired = parts.executions @ instructions + parts.elsewhere
    return ProgramCycles(
        cycles=timed.seconds * timed.hertz,
        gigahertz=timed.hertz / 1e9,
        system=timed.system,
        elsewhere=elsewhere / (elsewhere + costs[COUNT].total),
        refused=sum(pieces["refused"].values()) / pieces["executions"],
        predicted={name: cost.total for name, cost in costs.items()},
        blocks={
            COUNT: costs[COUNT].total / _WIDTH,
            "mca": costs["mca"].total,
            learned.name: own.total,
            SCOREBOARD: costs[SCOREBOARD].report["cycles"]["execution"],
        },
        inputs=inputs,
        parts=Parts(
            cycles=(parts.seconds * timed.hertz).tolist(),
            instructions=retired.tolist(),
            inputs={
                name: inputs_of_parts(parts, cycles, inputs) for name, cycles in by_block.items()
            },
        ),
    )


def _of_blocks(report: Mapping[str, Any], parts: RunParts) -> npt.NDArray[np.float64]:
    """Cycles that an evaluator says an execution of each block takes, [blocks]."""
    given = (
        (
            (function["name"], block["id"], block["executions"]),
            block["cycles"]["execution"] / block["executions"],
        )
        for function in report["functions"]
        for block in function["blocks"]
    )
    executions = parts.executions.sum(axis=0).astype(int).tolist()
    places = [(*block, count) for block, count in zip(parts.blocks, executions, strict=True)]
    return np.array([one or 0.0 for one in paired(places, given)], np.float64)


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    model: Path,
    *,
    cpu: Path,
    rounds: int,
    processor: int,
) -> list[Table]:
    """Measures some of the programs; returns tables of all results in the folder.

    Args:
      folder: for builds and results; correction.json is the correction fitted to all programs.
      model: folder of a learned cost model.
      cpu: CPU file, of a CPU that the model knows.
      rounds: how often each program runs to be timed.
      processor: number of the processor to which runs are bound.

    Raises:
      BenchmarkError: a program's runs differ, or there are results of one program only.
      LearnedError: the model does not know the CPU.
    """
    learned = LearnedReplay(load(model), llvm_name(cpu))
    folder.mkdir(parents=True, exist_ok=True)
    chain = folder / "chain"
    build_chain(chain)
    for name in programs:
        one = MeasuredRun(name, folder, toolchain)
        one.build()
        context = replace(one.record(), cpu=cpu)
        timed = one.measure(rounds, processor, chain)
        try:
            parts = one.parts(context, timed)
        except PartsError as error:
            logging.warning("%s; it counts as one part", error)
            timed = timed.as_one()
            parts = one.parts(context, timed)
        result = predicted(one.binary, context, learned, timed, parts)
        write_json(folder / f"{name}.json", msgspec.to_builtins(result))
    results = {
        name: convert(found, ProgramCycles, name) for name, found in saved(folder, PROGRAMS).items()
    }
    # Results of another model cannot be compared.
    results = {name: one for name, one in results.items() if learned.name in one.blocks}
    if len(results) < _FEWEST:
        raise BenchmarkError(
            f"{folder}: results of {', '.join(results)} only; a correction is judged by programs "
            "to which it was not fitted: measure another program, too (--only=)"
        )
    found = {name: corrections(results, name) for name in (COUNT, "mca", SCOREBOARD, learned.name)}
    weights = found[learned.name].weights
    write_correction(
        folder / "correction.json",
        Correction(
            evaluator=learned.name,
            mcpu=learned.cpu,
            weights={name: weights[name] for name in INPUTS},
            programs=tuple(results),
        ),
    )
    return tables(results, found)


@dataclass(frozen=True)
class Corrected:
    """The corrected cycles of an evaluator; each program has weights fitted to the others.

    Attributes:
      left_out: cycles of whole runs by program.
      weights: fitted to all programs.
      parts: cycles of parts, with the kernel's, by inputs (WITH_PMU...) and program.
    """

    left_out: Mapping[str, float]
    weights: dict[str, float]
    parts: Mapping[str, Mapping[str, Floats]]


def corrections(results: Mapping[str, ProgramCycles], evaluator: str) -> Corrected:
    """Fits a correction of an evaluator's cycles to parts of runs."""
    runs = [run for name, one in results.items() for run in one.parts.runs(name, evaluator)]
    instructions = np.concatenate([one.parts.instructions for one in results.values()])
    weights = left_out_weights(runs)
    found = {
        WITH_PMU: [left_out(runs, weights)],
        WITHOUT_PMU: [left_out(_without_pmu(runs))],
        SHUFFLED: [left_out(_shuffled(runs, instructions, seed)) for seed in range(1, _SEEDS + 1)],
    }
    whole = {}
    for name, one in results.items():
        inputs = {**one.inputs, BLOCKS: one.blocks[evaluator]}
        whole[name] = float(corrected([PredictedRun(name, inputs, one.cycles)], weights[name])[0])
    of = np.array([run.program for run in runs])
    parts = {
        way: {name: np.array(several)[:, of == name] for name in results}
        for way, several in found.items()
    }
    return Corrected(whole, fit(runs), parts)


def _without_pmu(runs: Sequence[PredictedRun]) -> list[PredictedRun]:
    return [replace(run, inputs={**run.inputs, **dict.fromkeys(_PMU, 0.0)}) for run in runs]


def _shuffled(runs: Sequence[PredictedRun], instructions: Floats, seed: int) -> list[PredictedRun]:
    """Each part with the PMU inputs of another part of any program, by instruction."""
    order = np.random.default_rng(seed).permutation(len(runs))
    found = []
    for run, own, other in zip(runs, instructions.tolist(), order.tolist(), strict=True):
        scale = own / instructions[other]
        rates = {name: runs[other].inputs[name] * scale for name in _PMU}
        found.append(replace(run, inputs={**run.inputs, **rates}))
    return found


def tables(results: Mapping[str, ProgramCycles], corrected: Mapping[str, Corrected]) -> list[Table]:
    """Predicted by measured cycles of runs and of parts, and the weights of corrections."""
    return [*_errors(results, corrected), _levels(results, corrected), _weights(corrected)]


def _levels(results: Mapping[str, ProgramCycles], corrected: Mapping[str, Corrected]) -> Table:
    """Cycles of whole runs, predicted by measured, with the mean error of each evaluator."""
    levels = []
    rows: list[list[Cell]] = []
    for name, one in results.items():
        row = [cycles / one.cycles for cycles in one.predicted.values()]
        row += [found.left_out[name] / one.cycles for found in corrected.values()]
        shares = [100 * share for share in (one.system, one.elsewhere, one.refused)]
        rows.append([name, one.cycles / 1e6, one.gigahertz, *shares, *row])
        levels.append(row)
    errors = np.abs(np.array(levels) - 1).mean(axis=0)
    rows.append(["mean of |ratio - 1|", *[None] * 5, *errors.tolist()])
    ways = [*next(iter(results.values())).predicted, *(f"{way}, corrected" for way in corrected)]
    columns = {
        "program": "text",
        "million cycles measured": "number:1",
        "GHz": "number:2",
        "kernel": "percent:1",
        "instructions elsewhere": "percent:1",
        "without prediction": "percent:1",
        **dict.fromkeys(ways, "ratio:2"),
    }
    return Table.of("runs", "Cycles of runs, predicted by measured.", columns, rows)


def _errors(
    results: Mapping[str, ProgramCycles], corrected: Mapping[str, Corrected]
) -> list[Table]:
    """Mean errors of parts: means over programs, and by program."""
    ways = [(name, inputs) for name in corrected for inputs in (WITHOUT_PMU, WITH_PMU, SHUFFLED)]
    # [programs, evaluators, inputs, as they are or with the level out]
    errors = 100 * np.array(
        [
            [_error(corrected[way].parts[inputs][name], one) for way, inputs in ways]
            for name, one in results.items()
        ]
    ).reshape(len(results), len(corrected), -1, 2)
    means: list[list[Cell]] = [
        [name, *row[:, 0].tolist(), *row[:2, 1].tolist()]
        for name, row in zip(corrected, errors.mean(axis=0), strict=True)
    ]
    head = ("without PMU data", "with", "of other parts", "without, level out", "with, level out")
    rows: list[list[Cell]] = [
        [name, len(one.parts.cycles), *row[:, :, 0].reshape(-1).tolist()]
        for (name, one), row in zip(results.items(), errors, strict=True)
    ]
    names = [f"{way}, {inputs}" for way, inputs in ways]
    caption = (
        "Mean error of parts of a millisecond or more, in the mean of programs, each corrected by "
        "weights that the other programs gave. *Of other parts*: with the PMU data of another "
        "part. *Level out*: after the program's own level is divided out."
    )
    return [
        Table.of(
            "parts", caption, {"evaluator": "text", **dict.fromkeys(head, "percent:1")}, means
        ),
        Table.of(
            "parts-by-program",
            "Mean errors of corrected parts by program.",
            {"program": "text", "parts": "integer", **dict.fromkeys(names, "percent:1")},
            rows,
        ),
    ]


def _error(predicted: Floats, one: ProgramCycles) -> tuple[float, float]:
    """Mean error of predictions [seeds, parts], as they are and with their level divided out."""
    measured = np.array(one.parts.cycles)
    level = predicted.sum(axis=1, keepdims=True) / measured.sum()
    own = float(np.abs(predicted / level / measured - 1).mean())
    return float(np.abs(predicted / measured - 1).mean()), own


def _weights(corrected: Mapping[str, Corrected]) -> Table:
    rows: list[list[Cell]] = [
        [name, *(one.weights[name] for one in corrected.values())] for name in (*INPUTS, FAULTS)
    ]
    columns = {"weight": "text", **dict.fromkeys(corrected, "number:3")}
    return Table.of("weights", "Weights of the corrections; faults in cycles each.", columns, rows)
