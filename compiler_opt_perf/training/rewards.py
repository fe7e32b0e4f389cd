# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What training makes smaller, measured from one compilation of a module."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.cost.evaluator import EVALUATORS, Context
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.training.log import read_log

#: Cost of each part of a module on which two compilations can be compared.
Costs = Mapping[str, float]


@dataclass(frozen=True)
class Reward:
    """How a cost is measured.

    Attributes:
      name: as in Problem.reward.
      adds_up: sums over modules mean something (bytes); otherwise modules are compared one by one
        (scores are relative to each function's entry).
      measure: the costs of one compilation, given its training log if the problem has its score
        there (Problem.score_in_log), else its object file.
    """

    name: str
    adds_up: bool
    measure: Callable[[Path], Costs]


def _size(object_file: Path) -> Costs:
    return {"text": float(text_bytes(object_file))}


def _regalloc_score(log: Path) -> Costs:
    # Logged by RegAllocScoring (MLRegAllocEvictAdvisor.cpp) after each function with a decision:
    # block-frequency-weighted loads, stores, copies and rematerialisations; lower is better.
    return read_log(log).last_rewards()


REWARDS: dict[str, Reward] = {
    reward.name: reward
    for reward in (
        Reward("text bytes", adds_up=True, measure=_size),
        Reward("RegAllocScore", adds_up=False, measure=_regalloc_score),
    )
}


def evaluator_reward(evaluator: str, context: Context) -> Reward:
    """An evaluator's cost of the object file, function by function (docs/cost.md).

    Instructions, cycles and bytes add up over the modules of one program. A function that only one
    of two compilations has is compared with nothing, as for every reward.

    Args:
      evaluator: name, one of EVALUATORS.
      context: the recorded run of the program that the modules belong to.
    """
    chosen = EVALUATORS[evaluator]

    def measure(object_file: Path) -> Costs:
        return chosen.cost([object_file], context).parts

    return Reward(f"{chosen.name} {chosen.unit}", adds_up=True, measure=measure)


def gain(default: Costs, policy: Costs) -> float:
    """Share of the default's cost that the policy saves: 1 - policy / default, over common parts.

    A part that only one of the two has (LLVM scores only functions with at least one decision)
    cannot be compared and counts on neither side. 0 when nothing can be compared.
    """
    common = default.keys() & policy.keys()
    total = sum(default[part] for part in common)
    return 1.0 - sum(policy[part] for part in common) / total if total > 0 else 0.0


def overall_gain(reward: Reward, defaults: Sequence[Costs], policies: Sequence[Costs]) -> float:
    """`gain` over modules: of the sums where costs add up, else the mean of the modules' gains.

    Args:
      defaults, policies: costs of the same modules in the same order, at least one.
    """
    if reward.adds_up:
        return gain(_joined(defaults), _joined(policies))
    gains = [gain(default, policy) for default, policy in zip(defaults, policies, strict=True)]
    return sum(gains) / len(gains)


def _joined(modules: Sequence[Costs]) -> Costs:
    return {f"{i}:{part}": cost for i, costs in enumerate(modules) for part, cost in costs.items()}
