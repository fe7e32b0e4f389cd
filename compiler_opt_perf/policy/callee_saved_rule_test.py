# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests for the rule of first uses of callee-saved registers."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.policy.callee_saved_rule import CalleeSavedRule
from compiler_opt_perf.policy.problem import EVICTION_COLUMNS, PROBLEMS

PROBLEM = PROBLEMS["regalloc-evict"]
IDLE = PROBLEM.idle_decision
RULES = (CalleeSavedRule(), CalleeSavedRule(2, 30), CalleeSavedRule(1024, 0.25))


def _questions(rule: CalleeSavedRule, seed: int) -> dict[str, npt.NDArray[Any]]:
    """A register and its alternative, with the rule's edges in all combinations."""
    price, measured = np.log2(rule.price), np.log2(1 + 1024 * rule.measured)
    costs = (-20, -1, 0, 0.9 * price, 0.98 * price, 1.02 * price, 20)
    executions = (-1, 0, 0.5 * measured, 0.98 * measured, 1.02 * measured, 40)
    rows = np.array(list(itertools.product(costs, executions, (0, 1), range(3))))
    draw = np.random.default_rng(seed)
    shape = (len(rows), EVICTION_COLUMNS)
    inputs = {
        feature.name: draw.uniform(-1, 5, (len(rows), feature.shape[-1]))
        for feature in PROBLEM.inputs(with_pmu=True)
    }
    register = np.where(np.arange(EVICTION_COLUMNS) == 5 * (1 + rows[:, 3:]), 1.0, 0.0)
    inputs["mask"] = np.where(np.arange(EVICTION_COLUMNS) == IDLE, 1.0, register)
    inputs["default_decision"] = inputs["first_use_of_callee_saved"] = register
    for name, column in (("alternative_cost", 0), ("pmu_alternative_executions", 1)):
        inputs[name] = np.broadcast_to(rows[:, [column]], shape)
    inputs["alternative_is_split"] = np.broadcast_to(rows[:, [2]], shape)
    inputs["alternative_is_spill"] = 1 - inputs["alternative_is_split"]
    return {name: values.astype(np.float32) for name, values in inputs.items()}


@pytest.mark.parametrize("rule", RULES)
def test_the_network_answers_as_the_rule(rule: CalleeSavedRule) -> None:
    network, weights = rule.network()
    inputs = _questions(rule, 1)
    decided = network.decide(weights, inputs)
    taken = rule({name: values[:, -1] for name, values in inputs.items()})
    assert decided.tolist() == np.where(taken, IDLE, inputs["mask"].argmax(1)).tolist()
    assert 0 < taken.sum() < len(taken) / 2


def test_evictions_and_what_is_not_known_are_left_to_the_compiler() -> None:
    network, weights = CalleeSavedRule().network()
    inputs = _questions(CalleeSavedRule(), 2)
    no_question = {name: np.zeros_like(inputs[name]) for name in inputs if "alternative" in name}
    unprofiled = {
        feature.name: np.full_like(inputs[feature.name], feature.unprofiled)
        for feature in PROBLEM.pmu_features
    }
    for changed in (no_question, unprofiled):
        decided = network.decide(weights, inputs | changed)
        assert (decided == inputs["default_decision"].argmax(1)).all()


@pytest.mark.parametrize("rule", [CalleeSavedRule(price=1), CalleeSavedRule(measured=40)])
def test_numbers_that_the_network_cannot_have(rule: CalleeSavedRule) -> None:
    with pytest.raises(ValueError, match="expected"):
        rule.network()
