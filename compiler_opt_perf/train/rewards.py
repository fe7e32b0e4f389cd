# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewards: the costs that training makes smaller, measured from one compilation of a module.

A reward is read off the object file or the log, or it is what a run costs, in one of two ways: by
replay of the run that another build was recorded in, or by record of a run of its own
(`train.recorded`).

Costs are compared to those of the compiler's own policy, module by module, as a ratio: below 1 is
better. Reports have it as a change, -0.01 for 1% less.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, Evaluator, Replay
from compiler_opt_perf.cost.regalloc_score import score_ratio
from compiler_opt_perf.cost.size import function_sizes, text_bytes
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.log import read_log

#: The part that holds instructions unknown to the CPU's model, charged the mean cost each.
UNSUPPORTED = "(unsupported instructions)"
#: The reward of trainings that count copies of functions (`Config.copies`).
LINKED_TEXT = "linked text bytes"
Way = Literal["replay", "record"]


@dataclass(frozen=True)
class Costs:
    """The cost of one compilation of a module.

    Attributes:
      parts: cost of each part: functions, or "text".
      executions: by function, how many of the recorded run's block executions the code accounts
        for; None when no run is replayed.
      shared: the functions that other modules of the program may have, too; for linked text.
      elsewhere: cost of the program's other code in a run of its own, of which differences count.
    """

    parts: Mapping[str, float]
    executions: Mapping[str, int] | None = None
    shared: tuple[str, ...] = ()
    elsewhere: float = 0.0

    @property
    def total(self) -> float:
        """The sum over all parts."""
        return math.fsum(self.parts.values())

    def weighted(self, weights: Mapping[str, float]) -> float:
        """The sum over all parts, each by its weight; 1 where there is none."""
        return math.fsum(cost * weights.get(part, 1.0) for part, cost in self.parts.items())


@dataclass(frozen=True)
class Reward:
    """How a cost is measured, and how two are compared.

    Attributes:
      name: as in Problem.reward.
      adds_up: whether costs of modules can be summed (bytes); if not, modules are compared one by
        one (scores are relative to each function's entry).
      measure: the costs of one compilation, given its training log if the problem has its score
        there (Problem.score_in_log), else its object file.
      by_program: programs are compared one by one, by the sums over their modules.
      way: how a run tells the cost; None if none does.
    """

    name: str
    adds_up: bool
    measure: Callable[[Path], Costs]
    by_program: bool = False
    way: Way | None = None

    def ratio(self, default: Costs, policy: Costs, weights: Mapping[str, float]) -> float:
        """The cost of a module with the policy, as a multiple of the default's.

        Args:
          default: with a total above 0, if costs add up.
          weights: by function; for scores how often it was called, for linked text 1 / copies.

        Raises:
          ScoreError: the two have scores of other functions.
        """
        if self.by_program:
            return policy.weighted(weights) / default.weighted(weights)
        if self.adds_up:
            return charged_total(default, policy) / default.total
        return score_ratio(default.parts, policy.parts, weights)

    def change(
        self, totals: Sequence[float], ratios: Sequence[float], programs: Sequence[str]
    ) -> float:
        """The change over modules: of the sums where costs add up, else the geometric mean.

        Args:
          totals, ratios, programs: of the same modules in the same order, at least one: the
            default's cost, the policy's as a multiple of it, and the module's program.
        """
        if not self.adds_up:
            return _geometric_mean(ratios) - 1.0
        groups = programs if self.by_program else [""] * len(programs)
        sums: dict[str, tuple[list[float], list[float]]] = {}
        for total, ratio, group in zip(totals, ratios, groups, strict=True):
            costs, defaults = sums.setdefault(group, ([], []))
            costs.append(total * ratio)
            defaults.append(total)
        changes = [math.fsum(costs) / math.fsum(own) for costs, own in sums.values()]
        return (_geometric_mean(changes) if self.by_program else changes[0]) - 1.0


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def charged_total(default: Costs, policy: Costs) -> float:
    """The policy's total, with a charge for code that it lost.

    Recorded executions of blocks that the policy's code no longer has cannot be priced. For single
    blocks llvm-trace-cost charges the mean cost; a function that is missing has no cost at all.
    So a function that lost executions costs at least what it costs with the default policy.
    """
    # In this order, equal costs have equal totals to the last digit.
    total = policy.total + (policy.elsewhere - default.elsewhere)
    if default.executions is None or policy.executions is None:
        return total
    for function, executions in default.executions.items():
        if policy.executions.get(function, 0) < executions:
            own = policy.parts.get(function, 0.0)
            total += max(default.parts[function] - own, 0.0)
    return total


def _size(object_file: Path) -> Costs:
    return Costs({"text": float(text_bytes(object_file))})


def _function_sizes(object_file: Path) -> Costs:
    sizes = function_sizes(object_file)
    return Costs(
        {name: float(size) for name, size in sizes.items()}, shared=tuple(sorted(sizes.shared))
    )


def _regalloc_score(log: Path) -> Costs:
    # Logged by RegAllocScoring (MLRegAllocEvictAdvisor.cpp) after each function with a decision:
    # block-frequency-weighted loads, stores, copies and rematerialisations; lower is better. Which
    # functions those are depends on no decision.
    return Costs(read_log(log).last_rewards())


REWARDS: dict[str, Reward] = {
    reward.name: reward
    for reward in (
        Reward("text bytes", adds_up=True, measure=_size),
        # The linker keeps one copy of a function that several objects have.
        Reward(LINKED_TEXT, adds_up=True, measure=_function_sizes, by_program=True),
        Reward("RegAllocScore", adds_up=False, measure=_regalloc_score),
    )
}


def require_comparable(
    problem: Problem,
    evaluator: Evaluator,
    context: Context,
    traces: Mapping[str, Path],
    programs: Sequence[str],
    recorded: Collection[str] = (),
) -> None:
    """Refuses an evaluator that cannot compare compilations of the problem.

    Args:
      traces: by program, in the place of the context's.
      programs: the programs of the modules.
      recorded: the programs that are run and recorded with each candidate.

    Raises:
      TrainingError: it replays no trace, the problem does not keep the functions and blocks that
        are replayed, or the context lacks something.
    """
    name = evaluator.name
    if not isinstance(evaluator, Replay):
        known = [name for name, row in EVALUATORS.items() if isinstance(row, Replay)]
        raise TrainingError(
            f"evaluator {name}: a training's modules are compared by one that replays a "
            f"trace: {', '.join(known)}, or a learned one"
        )
    if recorded:
        if context.trace is not None or traces:
            raise TrainingError(
                "--trace: is replayed, and the recipe's [runs] are recorded: give one of them"
            )
        _require_each("[runs]", "run", recorded, programs)
    elif not problem.keeps_blocks:
        raise TrainingError(
            f"evaluator {name}: cannot compare policies for {problem.name}: their decisions "
            "change the functions and blocks that the trace is of, and a function that vanishes "
            "would cost nothing; let candidates be recorded ([runs] in the recipe), or train "
            f"without an evaluator, on {problem.reward}"
        )
    elif context.trace is None and not traces:
        raise TrainingError(f"evaluator {name}: needs the trace to replay (--trace)")
    elif traces:
        _require_each("--trace", "trace", traces, programs)
    if evaluator.uses_cpu and context.cpu is None:
        raise TrainingError(f"evaluator {name}: needs a CPU file (--cpu)")


def _require_each(place: str, what: str, given: Collection[str], programs: Sequence[str]) -> None:
    """Raises TrainingError unless each program has its own."""
    if others := sorted(set(given) ^ set(programs)):
        raise TrainingError(
            f"{place}: {', '.join(others)}: the corpus has modules of {', '.join(programs)}; give "
            f"a {what} of each of these programs and of no other"
        )


def evaluator_reward(evaluator: Evaluator, context: Context) -> Reward:
    """An evaluator's cost of the object file, function by function (docs/cost.md).

    Instructions, cycles and bytes add up over the modules of one program.

    Args:
      context: the recorded run of the program that the modules belong to.
    """

    def measure(object_file: Path) -> Costs:
        cost = evaluator.cost([object_file], context)
        return replayed_costs(cost.parts, cost.report)

    name = f"{evaluator.name} {evaluator.unit}"
    return Reward(name, adds_up=True, measure=measure, way="replay")


def replayed_costs(parts: Mapping[str, float], report: Mapping[str, Any]) -> Costs:
    """Costs, with the executions that a report of llvm-trace-cost could not price.

    Args:
      parts: by function, and of unmapped blocks.
      report: docs/reference/formats.md; empty when no run was replayed.
    """
    if "functions" not in report:
        return Costs(parts)
    executions: dict[str, int] = {}
    for function in report["functions"]:
        own = sum(block["executions"] for block in function["blocks"])
        executions[function["name"]] = executions.get(function["name"], 0) + own
    if unsupported := report.get("unsupported", {}).get("executions", 0):
        mean = math.fsum(parts.values()) / max(report["instructions"], 1.0)
        parts = {**parts, UNSUPPORTED: unsupported * mean}
    return Costs(parts, executions)
