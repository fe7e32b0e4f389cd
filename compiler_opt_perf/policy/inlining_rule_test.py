# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests for the rule of inlining by a PMU profile."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.policy.inlining_rule import COST_UNIT, InliningRule
from compiler_opt_perf.policy.problem import PROBLEMS

RULES = (
    InliningRule(),
    InliningRule(hot=1, cost=1000, work=1024, cold_cost=40),
    InliningRule(hot=30, cost=500, work=1, cold_cost=225),
    InliningRule(hot=16, cost=3000, work=50, cold_cost=225, keep_locals=False),
)


def _inputs(rule: InliningRule, seed: int) -> dict[str, npt.NDArray[np.int64]]:
    """What lies at the rule's edges, in all combinations, and anything in the other features."""
    edges = {
        "inlining_default": [0, 1],
        "cost_estimate": [
            *(edge + step * COST_UNIT for edge in (rule.cost, rule.cold_cost) for step in (-1, 0)),
            *(-15000, -5, 0, 5, 10_000, 60_000),
        ],
        "pmu_callsite_executions_log2": [-1, 0, 1, rule.hot - 1, rule.hot, 30],
        "pmu_callee_instructions_per_entry": [-1, 0, rule.work - 1, rule.work, 1_000_000],
        "sroa_savings": [0, COST_UNIT, 10_000],
        "sroa_losses": [0, COST_UNIT],
    }
    rows = np.array(list(itertools.product(*edges.values())))
    draw = np.random.default_rng(seed)
    inputs = {
        feature.name: draw.integers(-1 if feature.may_be_missing else 0, 30, len(rows))
        for feature in PROBLEMS["inline-size"].inputs(with_pmu=True)
    }
    return inputs | dict(zip(edges, rows.T, strict=True))


@pytest.mark.parametrize("rule", RULES)
def test_the_network_decides_as_the_rule(rule: InliningRule) -> None:
    network, weights = rule.network()
    inputs = _inputs(rule, 1)
    decisions = network.decide(weights, inputs)
    assert decisions.tolist() == rule.decide(inputs).tolist()
    assert {0, 1} == set(decisions[inputs["inlining_default"] == 0])
    assert {0, 1} == set(decisions[inputs["inlining_default"] == 1])


def test_every_cost_and_count() -> None:
    rule = InliningRule()
    network, weights = rule.network()
    costs = np.arange(-1000, 8000, COST_UNIT)
    works = (-1, rule.work - 1, rule.work)
    for default, executions, work in itertools.product((0, 1), range(-1, 31), works):
        inputs = _inputs(rule, 2)
        inputs = {name: np.resize(values, len(costs)) for name, values in inputs.items()}
        inputs["cost_estimate"] = costs
        inputs["inlining_default"] = np.full(len(costs), default)
        inputs["pmu_callsite_executions_log2"] = np.full(len(costs), executions)
        inputs["pmu_callee_instructions_per_entry"] = np.full(len(costs), work)
        assert (network.decide(weights, inputs) == rule.decide(inputs)).all()


def test_without_a_profile_the_compiler_decides() -> None:
    rule = InliningRule()
    network, weights = rule.network()
    inputs = _inputs(rule, 3)
    for feature in PROBLEMS["inline-size"].pmu_features:
        inputs[feature.name] = np.full_like(inputs["cost_estimate"], feature.unprofiled)
    assert (network.decide(weights, inputs) == inputs["inlining_default"]).all()


@pytest.mark.parametrize(
    "rule",
    [
        InliningRule(hot=0),
        InliningRule(work=2000),
        InliningRule(cost=6000),
        InliningRule(cold_cost=10),
    ],
)
def test_numbers_that_the_network_cannot_have(rule: InliningRule) -> None:
    with pytest.raises(ValueError, match="hot|work|grid"):
        rule.network()
