# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.rule_network import Clause, Guard, Rule
from benchmarks.size_labels import PROBLEM
from benchmarks.size_rules import Linker, _judged, select, tune
from compiler_opt_perf.policy.network import DecisionKind
from compiler_opt_perf.policy.testing import random_inputs
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain

_KIND = DecisionKind(0, 1, 1)


def test_selection_finds_the_guards_that_made_the_labels() -> None:
    rows, random = 4000, np.random.default_rng(1)
    inputs = dict(random_inputs(PROBLEM, rows, 1))
    inputs |= {name: random.integers(0, 2, rows) for name in DecisionKind.__struct_fields__}
    inputs |= {
        name: random.integers(0, 200, rows) for name in ("callee_instructions", "callee_users")
    }
    pays = _KIND.holds(inputs) & (inputs["callee_instructions"] >= 60)
    pays &= inputs["callee_users"] <= 40
    advantage = np.where(pays, 5.0, -5.0)
    rule = select(inputs, advantage, pairs=False)
    (clause,) = rule.clauses
    assert clause.kind == _KIND
    assert {guard.terms[0][0] for guard in clause.guards} == {"callee_instructions", "callee_users"}
    # The first threshold is chosen before the second guard is known.
    assert (rule.otherwise(inputs) != pays).mean() < 0.005
    # Nothing that pays: nothing is learnt.
    assert select(inputs, -np.abs(advantage), pairs=False) == Rule(())


def _rule(threshold: float) -> Rule:
    return Rule((Clause(_KIND, (Guard((("callee_instructions", 1),), True, threshold),)),))


def test_thresholds_move_to_where_programs_are_smallest() -> None:
    def changes(rules: Sequence[Rule]) -> list[float]:
        return [float((one.thresholds()[0] - 1.5) ** 2) for one in rules]

    moved, history = tune(_rule(1.0), changes, 8)
    assert abs(moved.thresholds()[0] - 1.5) < 0.1
    assert [len(one) for one in history] == [1, *[8] * 8]
    assert tune(_rule(1.0), changes, 8) == (moved, history)
    # What is not better is not taken.
    assert tune(_rule(1.5), changes, 1)[0] == _rule(1.5)


def test_programs_that_chose_are_not_in_the_mean_of_the_unseen() -> None:
    smaller, larger = [1000, 900, 900, 900], [1000, 1100, 1100, 1100]
    judged = _judged({"minisat": smaller, "ninja": larger, "re2": larger})
    means = {row[0]: row[3] for row in judged.rows}
    assert means["geometric mean, chose"] == pytest.approx(-10)
    assert means["geometric mean, never seen"] == pytest.approx(10)


@pytest.mark.compiler
def test_a_program_is_linked_with_a_rule_once(toolchain: Toolchain, tmp_path: Path) -> None:
    # Inlines no COMDAT function that the compiler does not.
    never, always = _rule(4.0), _rule(-4.0)
    with Pool() as pool:
        linker = Linker(tmp_path, toolchain, pool)
        models = [None, *linker.published([never, always])]
        (sizes,) = linker.sizes(["gflags"], models).values()
        plain, same, other = sizes
        assert plain == same != other
    # From the notes: the pool is gone.
    assert linker.sizes(["gflags"], models) == {"gflags": sizes}
    assert linker.changes(["gflags"], [one for one in models if one])[0] == 0
