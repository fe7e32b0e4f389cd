# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cycles of whole runs as a sum of a few known inputs, each with a weight that anybody can read.

A model of blocks leaves out what is between and outside of them. What a recorded run and its
profile tell of that is counted here in cycles, by the CPU file's latencies where it has any: a
weight says which part of an input the core does not hide behind other work.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

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
# Of all executions, those that a whole program's code may lack.
_MOST_FOREIGN = 0.01

_Weight = Annotated[float, msgspec.Meta(ge=0, lt=1e6)]


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of inputs; docs/reference/formats.md.

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
