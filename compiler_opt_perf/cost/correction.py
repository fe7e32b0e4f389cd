# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Corrects the cycles of a block model by a weighted sum of a few inputs.

A block model leaves out costs between blocks and in other code. A recorded run and its profile
count the causes: mispredicts, cache misses, taken branches, calls. They are converted to cycles by
the CPU file's latencies. An input's weight is the share that the core does not overlap with other
work.
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
#: The evaluator's cycles, then the inputs that are added, in the order of tables.
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
# The largest share of executions in functions that a whole program's code may lack.
_MOST_FOREIGN = 0.01

_Weight = Annotated[float, msgspec.Meta(ge=0, lt=1e6)]


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of inputs (docs/reference/formats.md).

    Attributes:
      evaluator: name of the evaluator whose cycles are the first input.
      mcpu: LLVM's name of the CPU.
      weights: weight of each of INPUTS.
      programs: the programs to whose runs the weights were fitted.
    """

    format: str = FORMAT
    version: int = VERSION
    evaluator: CText
    mcpu: CText
    weights: dict[CText, _Weight]
    programs: tuple[CText, ...]

    def require(self, evaluator: str, mcpu: str) -> None:
        """Raises CostError: the weights are for another evaluator or CPU."""
        if (self.evaluator, self.mcpu) != (evaluator, mcpu):
            raise CostError(
                f"the correction is for {self.evaluator} on {self.mcpu}, not for {evaluator} on "
                f"{mcpu}; fit one (python -m benchmarks cycles)"
            )


class _Value(msgspec.Struct, frozen=True):
    value: Finite


class _Cpu(msgspec.Struct, frozen=True):
    """The fields of a CPU file that are used here."""

    mcpu: CText
    parameters: dict[str, _Value]


def inputs_of(cost: Cost, context: Context) -> dict[str, float]:
    """The values of INPUTS for a candidate, in cycles or occurrences.

    Args:
      cost: the evaluator's cost.
      context: must have a window histogram as trace, a profile and a CPU file. Mispredicts come
        from the branch predictor that was simulated on the trace; otherwise from the profile.

    Raises:
      CostError: the context lacks an input, or the candidate is only a part of a program.
      TraceError, PmuError, JsonError: a file is damaged.
    """
    if context.trace is None or context.profile is None or context.cpu is None:
        raise CostError("a correction needs a trace, a profile (--profile) and a CPU file (--cpu)")
    foreign = cost.report["foreign"]["executions"]
    if foreign > _MOST_FOREIGN * cost.report["trace"]["executions"]:
        raise CostError(
            f"{foreign:,} of {cost.report['trace']['executions']:,} executions are in functions "
            "that the code does not have; a correction needs whole programs"
        )
    parameters = decode(read_input(context.cpu), _Cpu, context.cpu).parameters
    manifest = Manifest.load(context.profile)
    events = {event.name: event for event in manifest.events}

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
    values = (
        cost.total,
        mispredicted * cycles("mispredict_penalty"),
        counted("l1-load-misses") * cycles("l2_latency"),
        counted("llc-load-misses") * cycles("memory_latency"),
        _taken(windows),
        calls,
        manifest.instructions_elsewhere,
    )
    return {name: float(value) for name, value in zip(INPUTS, values, strict=True)}


def _taken(windows: Windows) -> int:
    """The number of taken branches: pairs of successive blocks without fall-through."""
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
      CostError: the file cannot be read, or lacks the weight of an input.
      JsonError: the file is damaged.
    """
    try:
        found = decode(read_input(path), Correction, path, (FORMAT, VERSION))
    except OSError as error:
        raise CostError(f"{path}: cannot be read: {error.strerror}") from error
    if set(found.weights) != set(INPUTS):
        raise CostError(f"{path}: $.weights: expected weights of {', '.join(INPUTS)}")
    return found


def apply(correction: Correction, cost: Cost, context: Context) -> Cost:
    """Corrects a cost.

    The result's parts are the functions' costs times the weight of "blocks", and one part for each
    other input. Its report has the field `correction`, with inputs and weights by name.

    Raises the errors of inputs_of.
    """
    inputs, weights = inputs_of(cost, context), correction.weights
    parts = {name: weights[BLOCKS] * cycles for name, cycles in cost.parts.items()}
    for name in INPUTS[1:]:
        parts[f"({name})"] = weights[name] * inputs[name]
    shown: dict[str, Any] = {
        name: {"cycles": inputs[name], "weight": weights[name]} for name in INPUTS
    }
    return Cost(sum(parts.values()), parts, {**cost.report, "correction": shown})
