# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fits the weights of a correction of cycles (`cost.correction`) to measured parts of runs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import iced_x86
import numpy as np
from iced_x86 import FlowControl
from scipy.optimize import nnls

from benchmarks.parts import RunParts
from benchmarks.timing import Floats
from compiler_opt_perf.cost.correction import BLOCKS, INPUTS

#: Pages that the kernel gave the program. Their time is in the measured cycles of parts, and in no
#: prediction. The unit is pages, and the weight is in no file.
FAULTS = "page faults"
_FITTED = (*INPUTS, FAULTS)
# Inputs whose weight is expected to be 1; that of others is expected to be 0.
_EXPOSED = ("blocks", "mispredictions")
_CALLS = {FlowControl.CALL, FlowControl.INDIRECT_CALL, FlowControl.RETURN}
# Strengths of the ridge, from hardly any to nearly fixed weights.
_STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class PredictedRun:
    """A run, or a part of one, that was predicted and measured.

    Attributes:
      program: its name; runs of one program are left out together.
      inputs: cycles by name, for all of INPUTS, and FAULTS where `measured` has the kernel's time.
      measured: cycles.
    """

    program: str
    inputs: Mapping[str, float]
    measured: float


def inputs_of_parts(
    parts: RunParts, blocks: Floats, run: Mapping[str, float]
) -> list[dict[str, float]]:
    """The inputs of each part of a run. They add up to those of the run, except for `blocks`.

    Args:
      blocks: [B] cycles of an execution of each block.
      run: inputs of the whole run.
    """
    executions = parts.executions
    calls = [_calls(code) for code in parts.codes]
    amounts = {
        "mispredictions": parts.mispredicted,
        "first-level misses": executions @ parts.l1_misses,
        "last-level misses": executions @ parts.l3_misses,
        "taken branches": parts.taken,
        "calls and returns": executions @ np.array(calls, np.float64),
        "code elsewhere": parts.elsewhere,
    }
    columns = {BLOCKS: executions @ blocks, FAULTS: parts.faults}
    for name, amount in amounts.items():
        whole = amount.sum()
        columns[name] = amount * (run[name] / whole if whole else 0.0)
    return [
        {name: float(columns[name][number]) for name in _FITTED}
        for number in range(len(parts.seconds))
    ]


def _calls(code: bytes) -> int:
    """Calls and returns of an execution of a block."""
    return sum(one.flow_control in _CALLS for one in iced_x86.Decoder(64, code))


def fit(runs: Sequence[PredictedRun]) -> dict[str, float]:
    """Fits the weights of INPUTS and FAULTS, none below 0, to measured runs.

    Non-negative least squares of predicted / measured - 1 (Lawson and Hanson 1974). A long run
    weighs no more than a short one, and all programs weigh the same. There are few programs, so
    ridge regression draws each weight towards 1 (blocks, mispredictions) or 0 (all else). The
    strength is the one that predicts each program best from the others.

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


def _shares(runs: Sequence[PredictedRun]) -> Floats:
    """[runs] factors of deviations that make all programs weigh the same."""
    number = Counter(run.program for run in runs)
    return np.array([number[run.program] ** -0.5 for run in runs])


def _solved(runs: Sequence[PredictedRun], strength: float) -> dict[str, float]:
    """The weights; a weight off by 1 counts as a program that is off by `strength`."""
    measured, shares = np.array([run.measured for run in runs]), _shares(runs)
    drawn = strength * np.eye(len(_FITTED))
    # The time of the kernel for a page is not known beforehand.
    drawn[-1, -1] = 0.0
    expected = [float(name in _EXPOSED) for name in _FITTED]
    weights, _ = nnls(
        np.concatenate([_matrix(runs) * (shares / measured)[:, None], drawn]),
        np.concatenate([shares, drawn @ expected]),
    )
    return {name: float(w) for name, w in zip(_FITTED, weights, strict=True)}


def corrected(runs: Sequence[PredictedRun], weights: Mapping[str, float]) -> Floats:
    """[runs] cycles; with the kernel's, where FAULTS has a weight."""
    found: Floats = _matrix(runs) @ [weights.get(name, 0.0) for name in _FITTED]
    return found


def left_out_weights(runs: Sequence[PredictedRun]) -> dict[str, dict[str, float]]:
    """By program, the weights fitted to the runs of the other programs."""
    return _left_out_weights(runs, fit)


def left_out(
    runs: Sequence[PredictedRun], weights: Mapping[str, Mapping[str, float]] | None = None
) -> Floats:
    """[runs] cycles, each by the weights fitted to the other programs.

    Args:
      weights: the result of left_out_weights, if it is known.
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


def _matrix(runs: Sequence[PredictedRun]) -> Floats:
    return np.array([[run.inputs.get(name, 0.0) for name in _FITTED] for run in runs], np.float64)
