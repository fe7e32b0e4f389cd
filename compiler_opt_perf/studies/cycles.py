# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges predicted cycles of runs and of their parts by measured time, and corrections of them.

Real programs, each run once to be recorded and profiled, and then to be timed: the fastest times of
the parts of its runs, in cycles of a chain of dependent additions that is timed in turn with it.
Evaluators of cycles and a learned model of blocks predict the same run and the same parts; a
correction is fitted on the parts of the other programs, with PMU data, without, and with those of
other parts. Goes on where it stopped; writes OUTPUT/PROGRAM.json and OUTPUT/PROGRAM.parts.
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

from compiler_opt_perf.blocks.cpu_files import llvm_name
from compiler_opt_perf.blocks.model import CostModel
from compiler_opt_perf.blocks.neighbours import paired
from compiler_opt_perf.blocks.run_parts import PartsError, RunParts
from compiler_opt_perf.cost.correction import (
    BLOCKS,
    FAULTS,
    INPUTS,
    Correction,
    PredictedRun,
    corrected,
    fit,
    inputs_of,
    inputs_of_parts,
    left_out,
    left_out_weights,
    write_correction,
)
from compiler_opt_perf.cost.evaluator import EVALUATORS, Context
from compiler_opt_perf.cost.learned_replay import LearnedReplay
from compiler_opt_perf.pages.predictions import write_plot
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.json_text import convert
from compiler_opt_perf.studies.common import StudyError, saved
from compiler_opt_perf.studies.measured_runs import MeasuredRun, Timed, build_chain
from compiler_opt_perf.studies.workloads import COUNTED
from compiler_opt_perf.toolchain.installation import Toolchain

#: LMDB's time is the system's, and zstd has threads.
PROGRAMS = tuple(name for name in COUNTED if name not in ("lmdb", "zstd"))
ROUNDS = 30
_FACTS = (
    *("program", "million cycles measured", "GHz", "of the system", "instructions elsewhere"),
    "without prediction",
)
#: Of the evaluators, the one whose cycles are corrected besides the learned model's.
SCOREBOARD = "mca-pmu"
#: What no model of blocks may be worse than: instructions alone, so many in a cycle.
COUNT = "count"
_WIDTH = 4
_EVALUATED = (COUNT, "mca", SCOREBOARD)
#: What a correction is given of PMU data.
WITHOUT_PMU, WITH_PMU, SHUFFLED = "no PMU data", "PMU data", "of other parts"
_PMU = ("mispredictions", "first-level misses", "last-level misses")
_FEWEST = 2
# Orders in which data of other parts are given.
_SEEDS = 5

Floats = npt.NDArray[np.float64]


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
      parts: of its parts.
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
    """What is known of the parts of a run, a value of each.

    Attributes:
      cycles: measured, the system's included.
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
) -> Result:
    """Predicts a run, and its parts, with every evaluator."""
    costs = {name: EVALUATORS[name].cost([binary], context) for name in _EVALUATED}
    costs[learned.name] = own = learned.cost([binary], context)
    inputs = inputs_of(own, context)
    pieces, elsewhere = own.report["pieces"], inputs["code elsewhere"]
    codes = [bytes.fromhex(block.code) for block in parts.blocks]
    instructions = np.array([sum(1 for _ in iced_x86.Decoder(64, code)) for code in codes], float)
    by_block = {
        COUNT: instructions / _WIDTH,
        "mca": _of_blocks(costs["mca"].report, parts),
        SCOREBOARD: _of_blocks(costs[SCOREBOARD].report, parts),
        learned.name: _of_blocks(own.report, parts),
    }
    retired = parts.executions() @ instructions + parts.column("elsewhere")
    return Result(
        cycles=timed.seconds * timed.hertz,
        gigahertz=timed.hertz / 1e9,
        system=timed.system_s / timed.whole_s,
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
            cycles=(parts.column("seconds") * timed.hertz).tolist(),
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
    executions = parts.executions().sum(axis=0).astype(int).tolist()
    places = [
        (block.function, block.id, count)
        for block, count in zip(parts.blocks, executions, strict=True)
    ]
    return np.array([one or 0.0 for one in paired(places, given)], np.float64)


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    model: CostModel,
    *,
    cpu: Path,
    rounds: int,
    processor: int,
    plot: Path | None = None,
) -> str:
    """Studies some of the programs; returns tables of all results in the folder, in Markdown.

    Args:
      cpu: CPU file, of a CPU that the model knows.
      rounds: how often each program runs to be timed.
      processor: number of the processor that runs are bound to.
      plot: SVG file for predicted against measured cycles of parts.

    Raises:
      StudyError: a program's runs differ, or there are results of one program only.
      LearnedError: the model does not know the CPU.
    """
    output = output.resolve()
    learned = LearnedReplay(model, llvm_name(cpu))
    output.mkdir(parents=True, exist_ok=True)
    chain = output / "chain"
    build_chain(chain)
    for name in programs:
        one = MeasuredRun(name, output, toolchain)
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
        write_json(output / f"{name}.json", msgspec.to_builtins(result))
    results = {
        name: convert(found, Result, name) for name, found in saved(output, PROGRAMS).items()
    }
    # Those of another model are not to be compared with.
    results = {name: one for name, one in results.items() if learned.name in one.blocks}
    if len(results) < _FEWEST:
        raise StudyError(
            f"{output}: results of {', '.join(results)} only; a correction is judged by programs "
            "that it was not fitted to: study another one, too (--only=)"
        )
    found = {name: corrections(results, name) for name in (COUNT, "mca", SCOREBOARD, learned.name)}
    weights = found[learned.name].weights
    write_correction(
        output / "correction.json",
        Correction(
            evaluator=learned.name,
            mcpu=learned.cpu,
            weights={name: weights[name] for name in INPUTS},
            programs=tuple(results),
        ),
    )
    if plot is not None:
        own = found[learned.name].parts
        measured = np.concatenate([one.parts.cycles for one in results.values()])
        points = {
            f"{learned.name}, {way}": (
                np.concatenate([own[way][name][0] for name in results]),
                measured,
            )
            for way in (WITHOUT_PMU, WITH_PMU, SHUFFLED)
        }
        title = f"parts of {len(results)} programs' runs, each by weights of the other programs"
        write_plot(plot, title, points, of="parts")
    return tables(results, found)


@dataclass(frozen=True)
class Corrected:
    """What a correction makes of one evaluator's cycles; programs are judged by weights of others.

    Attributes:
      left_out: cycles of whole runs by program.
      weights: fitted to all programs.
      parts: cycles of parts, the system's included, by inputs (WITH_PMU...) and program.
    """

    left_out: Mapping[str, float]
    weights: dict[str, float]
    parts: Mapping[str, Mapping[str, Floats]]


def corrections(results: Mapping[str, Result], evaluator: str) -> Corrected:
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


def tables(results: Mapping[str, Result], corrected: Mapping[str, Corrected]) -> str:
    """Predicted by measured cycles of runs and of parts, and the weights, in Markdown."""
    return "\n".join(
        [*_levels(results, corrected), "", *_errors(results, corrected), "", *_weights(corrected)]
    )


def _levels(results: Mapping[str, Result], corrected: Mapping[str, Corrected]) -> list[str]:
    levels: dict[str, dict[str, float]] = {}
    for name, one in results.items():
        row = {way: cycles / one.cycles for way, cycles in one.predicted.items()}
        for way, found in corrected.items():
            row[f"{way}, corrected"] = found.left_out[name] / one.cycles
        levels[name] = row
    ways = list(next(iter(levels.values())))
    lines = [*_head([*_FACTS, *ways])]
    for name, one in results.items():
        cells = [name, f"{one.cycles / 1e6:,.1f}", f"{one.gigahertz:.2f}"]
        cells += [f"{share:.1%}" for share in (one.system, one.elsewhere, one.refused)]
        cells += [f"{levels[name][way]:.2f}" for way in ways]
        lines.append(_row(cells))
    table = np.array([[row[way] for way in ways] for row in levels.values()])
    for what, values in (
        ("mean error", np.abs(table - 1).mean(axis=0)),
        ("largest / smallest", table.max(axis=0) / table.min(axis=0)),
    ):
        shown = [f"{value:.1%}" if what == "mean error" else f"{value:.2f}" for value in values]
        lines.append(_row([what, *[""] * (len(_FACTS) - 1), *shown]))
    return lines


def _errors(results: Mapping[str, Result], corrected: Mapping[str, Corrected]) -> list[str]:
    """Mean errors of parts, and what is left where each program's own level is divided out."""
    ways = [(name, inputs) for name in corrected for inputs in (WITHOUT_PMU, WITH_PMU, SHUFFLED)]
    errors = {
        name: [_error(corrected[way].parts[inputs][name], one) for way, inputs in ways]
        for name, one in results.items()
    }
    lines = [*_head(["program", "parts", *[f"`{way}`, {inputs}" for way, inputs in ways]])]
    for name, row in errors.items():
        cells = [f"{error:.1%} ({own:.1%})" for error, own in row]
        lines.append(_row([name, str(len(results[name].parts.cycles)), *cells]))
    means = np.mean(list(errors.values()), axis=0)
    lines.append(_row(["mean", "", *[f"{error:.1%} ({own:.1%})" for error, own in means]]))
    return lines


def _error(predicted: Floats, one: Result) -> tuple[float, float]:
    """Mean error of predictions [seeds, parts], as they are and with their level divided out."""
    measured = np.array(one.parts.cycles)
    level = predicted.sum(axis=1, keepdims=True) / measured.sum()
    own = float(np.abs(predicted / level / measured - 1).mean())
    return float(np.abs(predicted / measured - 1).mean()), own


def _weights(corrected: Mapping[str, Corrected]) -> list[str]:
    lines = [*_head(["weight of", *corrected])]
    for name in (*INPUTS, FAULTS):
        weights = [one.weights[name] for one in corrected.values()]
        shown = [f"{one:,.0f} cycles each" if name == FAULTS else f"{one:.3f}" for one in weights]
        lines.append(_row([name, *shown]))
    return [*lines, ""]


def _head(cells: Sequence[str]) -> tuple[str, str]:
    return _row(cells), "|---" * len(cells) + "|"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
