# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import numpy as np

from benchmarks.rule_network import Clause, Guard, Rule, encoded, value_of
from compiler_opt_perf.policy.network import DecisionKind
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_inputs

_PROBLEM = PROBLEMS["inline-size"]
_SIZE, _USES, _COST = "callee_instructions", "callee_users", "cost_estimate"


def _rule() -> Rule:
    return Rule(
        (
            Clause(
                DecisionKind(0, 1, 1),
                (Guard(((_SIZE, 1), (_USES, 1)), False, 2.5), Guard(((_COST, 1),), True, -0.5)),
            ),
            Clause(DecisionKind(1, 0, 1), (Guard(((_SIZE, 1), (_USES, -1)), True, 0.25),)),
        )
    )


def test_the_network_decides_as_the_rule_does() -> None:
    inputs, random = dict(random_inputs(_PROBLEM, 20_000, 1)), np.random.default_rng(1)
    inputs |= {name: random.integers(0, 2, 20_000) for name in DecisionKind.__struct_fields__}
    inputs |= {name: random.integers(0, 100, 20_000) for name in (_SIZE, _USES)}
    rule = _rule()
    network, weights = rule.network()
    default = inputs["inlining_default"] > 0
    otherwise = network.decide(weights, inputs) != default
    np.testing.assert_array_equal(otherwise, rule.otherwise(inputs))
    # Both clauses decide something.
    for inlined in (False, True):
        own = otherwise[default == inlined]
        assert own.any() and not own.all()


def test_a_guard_is_of_the_product_or_ratio_of_features() -> None:
    inputs = dict(random_inputs(_PROBLEM, 3, 1))
    inputs |= {_SIZE: np.array([1, 7, 31]), _USES: np.array([1, 3, 0])}
    columns = encoded(inputs)
    product = value_of(((_SIZE, 1), (_USES, 1)), columns)
    ratio = value_of(((_SIZE, 1), (_USES, -1)), columns)
    # A quarter of log2 of (1 + size) and (1 + uses).
    np.testing.assert_array_equal(product, [2 / 4, 5 / 4, 5 / 4])
    np.testing.assert_array_equal(ratio, [0, 1 / 4, 5 / 4])


def test_thresholds_are_replaced_in_order_and_on_the_grid() -> None:
    rule = _rule()
    np.testing.assert_array_equal(rule.thresholds(), [2.5, -0.5, 0.25])
    other = rule.with_thresholds([-1.001, 9.0, 0.0])
    np.testing.assert_array_equal(other.thresholds(), [-1.0, 4.0, 0.0])
    assert other.with_thresholds(rule.thresholds().tolist()) == rule


def test_a_rule_is_told_in_words() -> None:
    assert str(_rule()) == (
        "inline COMDAT functions of C++ if callee_instructions x callee_users <= 1.02e+03 and "
        "cost_estimate >= -3; keep other functions of C++ if "
        "callee_instructions / callee_users >= 2"
    )
    assert str(Rule(())) == "as the compiler"
