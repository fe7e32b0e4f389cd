# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cycles of whole runs as a sum of a few known inputs, each with a weight that anybody can read.

A model of blocks leaves out what is between and outside of them. What a recorded run and its
profile tell of that is counted here in cycles, by the CPU file's latencies where it has any: a
weight says which part of an input the core does not hide behind other work.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import iced_x86
import msgspec
import numpy as np
import numpy.typing as npt
from iced_x86 import FlowControl

from compiler_opt_perf.blocks.run_parts import RunParts
from compiler_opt_perf.cost.evaluator import Context, Cost, CostError
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.run.files import read_input, write_json
from compiler_opt_perf.run.json_text import CText, Finite, decode
from compiler_opt_perf.trace.windows import Windows

FORMAT = "compiler-opt-perf/cost-correction"
VERSION = 1
#: What an evaluator says, and what is added to it. In the order of tables.
INPUTS = (
    "blocks",
    "mispredictions",
    "first-level misses",
    "last-level misses",
    "taken branches",
    "calls and returns",
    "code elsewhere",
)
BLOCKS = INPUTS[0]
#: Pages that the system gave the program: its time is in what is measured of parts, and in nothing
#: that is predicted. Not in cycles, and the weight is in no file.
FAULTS = "page faults"
_FITTED = (*INPUTS, FAULTS)
# Those whose weight is expected to be 1; that of others is expected to be 0.
_EXPOSED = ("blocks", "mispredictions")
_CALLS = {FlowControl.CALL, FlowControl.INDIRECT_CALL, FlowControl.RETURN}
# How much weights may be drawn to what is expected, from hardly to nearly fixed.
_STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
# Of all executions, those that a whole program's code may lack.
_MOST_FOREIGN = 0.01

_Weight = Annotated[float, msgspec.Meta(ge=0, lt=1e6)]


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of inputs; docs/formats.md.

    Attributes:
      evaluator: whose cycles are the first input.
      mcpu: LLVM's name of the CPU that the weights are for.
      weights: by input, all of INPUTS.
      programs: whose runs they were fitted to.
    """

    format: str = FORMAT
    version: int = VERSION
    evaluator: CText
    mcpu: CText
    weights: dict[CText, _Weight]
    programs: tuple[CText, ...]

    def require(self, evaluator: str, mcpu: str) -> None:
        """Raises CostError where the weights are for another model or CPU."""
        if (self.evaluator, self.mcpu) != (evaluator, mcpu):
            raise CostError(
                f"a correction of {self.evaluator} on {self.mcpu}, not of {evaluator} on {mcpu}; "
                "fit another one (python -m benchmarks cycles)"
            )


class _Value(msgspec.Struct, frozen=True):
    value: Finite


class _Cpu(msgspec.Struct, frozen=True):
    """What is needed of a CPU file."""

    mcpu: CText
    parameters: dict[str, _Value]


@dataclass(frozen=True)
class PredictedRun:
    """A run, or a part of one, that was predicted and measured.

    Attributes:
      program: its name; runs of one program are left out together.
      inputs: cycles by name, all of INPUTS; and FAULTS, where the system's are measured, too.
      measured: cycles.
    """

    program: str
    inputs: Mapping[str, float]
    measured: float


def inputs_of(cost: Cost, context: Context) -> dict[str, float]:
    """The inputs of a run: what an evaluator says of a candidate, and what the run tells besides.

    Args:
      context: with a trace, a profile and a CPU file. Mispredictions are those of the predictor
        that was simulated on the trace, where it has them, else those of the profile.

    Raises:
      CostError: the context lacks something, or the candidate is a part of a program only.
      TraceError, PmuError, JsonError: a file is damaged.
    """
    if context.trace is None or context.profile is None or context.cpu is None:
        raise CostError("a correction needs a trace, a profile (--profile) and a CPU file (--cpu)")
    foreign = cost.report["foreign"]["executions"]
    if foreign > _MOST_FOREIGN * cost.report["trace"]["executions"]:
        raise CostError(
            f"{foreign:,} of {cost.report['trace']['executions']:,} executions are of functions "
            "that the code does not have; a correction is for whole programs"
        )
    parameters = decode(read_input(context.cpu), _Cpu, context.cpu).parameters
    events = {event.name: event for event in Manifest.load(context.profile).events}

    def counted(*names: str) -> int:
        return sum(events[name].total for name in names if name in events)

    def cycles(name: str) -> float:
        return parameters[name].value if name in parameters else 0.0

    windows = Windows.load(context.trace)
    if windows.branches is None:
        mispredicted = counted("conditional-branch-mispredicts", "indirect-branch-mispredicts")
    else:
        mispredicted = int(windows.branches[:, [1, 3]].sum())
    ended_by = cost.report.get("pieces", {}).get("ended_by", {})
    calls = sum(ended_by.get(name, 0) for name in ("calls", "indirect_calls", "returns"))
    elsewhere = events["instructions"].outside if "instructions" in events else 0
    values = (
        cost.total,
        mispredicted * cycles("mispredict_penalty"),
        counted("l1-load-misses") * cycles("l2_latency"),
        counted("llc-load-misses") * cycles("memory_latency"),
        _taken(windows),
        calls,
        elsewhere,
    )
    return {name: float(value) for name, value in zip(INPUTS, values, strict=True)}


def _taken(windows: Windows) -> int:
    """How often a block was followed by one that does not stand behind it."""
    pairs = windows.blocks[:, -2:]
    known = (pairs < len(windows.table)).all(axis=1)
    jumps = windows.table.jumps(*pairs[known].T)
    return int(windows.counts[known][jumps].sum())


def inputs_of_parts(
    parts: RunParts, blocks: npt.NDArray[np.float64], run: Mapping[str, float]
) -> list[dict[str, float]]:
    """The inputs of each part of a run; those of all parts add up to the run's, but for `blocks`.

    Args:
      blocks: [B], cycles of an execution of each of the parts' blocks.
      run: inputs of the whole run.
    """
    executions = parts.executions()
    calls = [_calls(bytes.fromhex(block.code)) for block in parts.blocks]
    amounts = {
        "mispredictions": parts.column("mispredicted"),
        "first-level misses": executions @ parts.known("l1_miss"),
        "last-level misses": executions @ parts.known("l3_miss"),
        "taken branches": parts.column("taken"),
        "calls and returns": executions @ np.array(calls, np.float64),
        "code elsewhere": parts.column("elsewhere"),
    }
    columns = {BLOCKS: executions @ blocks, FAULTS: parts.column("faults")}
    for name, amount in amounts.items():
        whole = amount.sum()
        columns[name] = amount * (run[name] / whole if whole else 0.0)
    return [
        {name: float(columns[name][number]) for name in _FITTED}
        for number in range(len(parts.parts))
    ]


def _calls(code: bytes) -> int:
    """Calls and returns of an execution of a block."""
    return sum(one.flow_control in _CALLS for one in iced_x86.Decoder(64, code))


def fit(runs: Sequence[PredictedRun]) -> dict[str, float]:
    """The weights of INPUTS and FAULTS, none below 0, that bring sums nearest to what was measured.

    Least squares of predicted / measured - 1 (Lawson and Hanson 1974), so that a long run weighs no
    more than a short one, and all runs of a program together as much as those of another. There are
    few programs, so each weight is drawn towards what it would be if a core hid nothing of blocks
    and mispredictions and all else (ridge regression); how much, is what predicts each of these
    programs best from the others.

    Raises:
      ValueError: there are no runs.
    """
    if not runs:
        raise ValueError("no runs")
    measured = np.array([run.measured for run in runs])
    share = _shares(runs) ** 2

    def error(strength: float) -> float:
        weights = _left_out_weights(runs, lambda some: _solved(some, strength))
        errors = np.abs(left_out(runs, weights) / measured - 1)
        return float(np.sum(share * errors))

    several = len({run.program for run in runs}) > 1
    return _solved(runs, min(_STRENGTHS, key=error) if several else _STRENGTHS[-1])


def _shares(runs: Sequence[PredictedRun]) -> npt.NDArray[np.float64]:
    """By what to multiply each run's deviation, [runs], so that programs count alike."""
    number = Counter(run.program for run in runs)
    return np.array([number[run.program] ** -0.5 for run in runs])


def _solved(runs: Sequence[PredictedRun], strength: float) -> dict[str, float]:
    """The weights; one that is off by 1 counts as a program that is off by `strength`."""
    from scipy.optimize import nnls

    measured, shares = np.array([run.measured for run in runs]), _shares(runs)
    drawn = strength * np.eye(len(_FITTED))
    # Nobody knows beforehand what the system takes for a page.
    drawn[-1, -1] = 0.0
    expected = [float(name in _EXPOSED) for name in _FITTED]
    weights, _ = nnls(
        np.concatenate([_matrix(runs) * (shares / measured)[:, None], drawn]),
        np.concatenate([shares, drawn @ expected]),
    )
    return {name: float(w) for name, w in zip(_FITTED, weights, strict=True)}


def corrected(
    runs: Sequence[PredictedRun], weights: Mapping[str, float]
) -> npt.NDArray[np.float64]:
    """Cycles of runs, [runs]; the system's, where there is a weight of FAULTS."""
    found: npt.NDArray[np.float64] = _matrix(runs) @ [weights.get(name, 0.0) for name in _FITTED]
    return found


def left_out_weights(runs: Sequence[PredictedRun]) -> dict[str, dict[str, float]]:
    """By program, what is fitted to the other programs' runs."""
    return _left_out_weights(runs, fit)


def left_out(
    runs: Sequence[PredictedRun], weights: Mapping[str, Mapping[str, float]] | None = None
) -> npt.NDArray[np.float64]:
    """Cycles of runs, [runs], each by what was fitted to the other programs' runs.

    Args:
      weights: what left_out_weights returned, where it was called before.
    """
    by_program = left_out_weights(runs) if weights is None else weights
    of = np.array([run.program for run in runs])
    found = np.zeros(len(runs))
    for name in np.unique(of):
        own = np.flatnonzero(of == name)
        found[own] = corrected([runs[number] for number in own], by_program[name])
    return found


def _left_out_weights(
    runs: Sequence[PredictedRun], fitted: Callable[[Sequence[PredictedRun]], dict[str, float]]
) -> dict[str, dict[str, float]]:
    programs = dict.fromkeys(run.program for run in runs)
    return {name: fitted([run for run in runs if run.program != name]) for name in programs}


def _matrix(runs: Sequence[PredictedRun]) -> npt.NDArray[np.float64]:
    return np.array([[run.inputs.get(name, 0.0) for name in _FITTED] for run in runs], np.float64)


def write_correction(path: Path, correction: Correction) -> None:
    """Writes a file of weights. Raises FileWriteError."""
    write_json(path, msgspec.to_builtins(correction))


def read_correction(path: Path) -> Correction:
    """Reads a file of weights.

    Raises:
      CostError: it cannot be read, or lacks the weight of an input.
      JsonError: it is damaged.
    """
    try:
        found = decode(read_input(path), Correction, path, (FORMAT, VERSION))
    except OSError as error:
        raise CostError(f"{path}: cannot be read: {error.strerror}") from error
    if set(found.weights) != set(INPUTS):
        raise CostError(f"{path}: $.weights: expected those of {', '.join(INPUTS)}")
    return found


def apply(correction: Correction, cost: Cost, context: Context) -> Cost:
    """A cost whose total is the corrected one.

    Its parts are the functions, times the weight of blocks, and a part for each other input. The
    report has `correction`, inputs and weights by name.

    Raises: as inputs_of.
    """
    inputs, weights = inputs_of(cost, context), correction.weights
    parts = {name: weights[BLOCKS] * cycles for name, cycles in cost.parts.items()}
    for name in INPUTS[1:]:
        parts[f"({name})"] = weights[name] * inputs[name]
    shown: dict[str, Any] = {
        name: {"cycles": inputs[name], "weight": weights[name]} for name in INPUTS
    }
    return Cost(sum(parts.values()), parts, {**cost.report, "correction": shown})
