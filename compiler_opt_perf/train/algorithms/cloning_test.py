# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.policy.network import IntArray
from compiler_opt_perf.policy.problem import PROBLEMS, Problem
from compiler_opt_perf.policy.testing import random_inputs, random_network
from compiler_opt_perf.train.algorithms import cloning
from compiler_opt_perf.train.algorithms.cloning import Cloning, class_weights

SETTINGS = Cloning(steps=400, batch_size=128, learning_rate=0.02, label_smoothing=0.1)
ROWS = 10000


def teach(problem: Problem, inputs: dict[str, npt.NDArray[Any]]) -> IntArray:
    """A rule like the compiler's: cheap call sites are inlined, light ranges evicted."""
    if problem.mask is None:
        return (inputs["cost_estimate"] < inputs["callsite_cost"]).astype(np.int64)
    weight = np.where(np.isnan(inputs["use_def_density"]), 1.0, inputs["use_def_density"])
    return np.asarray(np.argmin(np.where(inputs["mask"] > 0, weight, 9.0), axis=1), np.int64)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_imitates_a_rule_and_repeats_itself(problem: Problem) -> None:
    network = random_network(problem)
    inputs = random_inputs(problem, ROWS, seed=2)
    decisions = teach(problem, inputs)
    weights = cloning.train(network, inputs, decisions, SETTINGS, seed=1)
    held_out = random_inputs(problem, 600, seed=3)
    decided = teach(problem, held_out)
    overall, idle, active = cloning.accuracy(network, weights, held_out, decided)
    assert overall > 0.85
    assert min(idle, active) > 0.7
    few = {name: values[:1000] for name, values in inputs.items()}
    one, other = (cloning.train(network, few, decisions[:1000], SETTINGS, seed=1) for _ in "12")
    np.testing.assert_array_equal(one, other)


def test_class_weights_balance_idle_and_active_rows() -> None:
    decisions = np.array([0] * 90 + [1] * 10)
    weights = class_weights(decisions, idle_decision=0)
    assert weights.mean() == pytest.approx(1.0)
    assert weights[:90].sum() == pytest.approx(weights[90:].sum(), rel=1e-5)
    np.testing.assert_array_equal(class_weights(np.ones(4, np.int64), 0), np.ones(4))
