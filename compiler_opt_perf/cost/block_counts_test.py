# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import math
from typing import Any

import pytest
from scipy.optimize import linprog

from compiler_opt_perf.cost import block_counts
from compiler_opt_perf.cost.block_counts import FitError, Observation, fit
from compiler_opt_perf.cost.object_code import FunctionCode

# 0 branches to 1 or 2, which join in 3; 3 is a loop that ends in 4.
CODE = FunctionCode(entries=[0], sizes=[1] * 5, successors=[[1, 2], [3], [3], [3, 4], []])


def _seen(block: int, count: float, weight: float = 1.0) -> Observation:
    return Observation((block,), count, count, weight)


def test_what_enters_leaves() -> None:
    found = fit(CODE, [_seen(1, 30), _seen(3, 1000)], entered=100)
    assert found.blocks.tolist() == pytest.approx([100, 30, 70, 1000, 100])
    assert found.entered == pytest.approx(100)
    assert found.edges == pytest.approx(
        {(0, 1): 30, (0, 2): 70, (1, 3): 30, (2, 3): 70, (3, 3): 900, (3, 4): 100}
    )


def test_one_wrong_observation_changes_nothing() -> None:
    known = [_seen(0, 100), _seen(1, 30), _seen(2, 70), _seen(4, 100), _seen(3, 500)]
    found = fit(CODE, [*known, _seen(1, 1e6)])
    assert found.blocks.tolist() == pytest.approx([100, 30, 70, 500, 100])


def test_sums_and_bounds() -> None:
    # Two copies of a line in blocks 1 and 2, one of them twice; block 1 ran at most 10 times.
    known = [Observation((1, 2, 2), 190, 190, 1.0), Observation((1,), 0, 10, 1.0)]
    found = fit(CODE, known, entered=100)
    assert found.blocks.tolist()[1:3] == pytest.approx([10, 90])
    at_least = fit(CODE, [Observation((3,), 400, math.inf, 1.0), _seen(1, 0)], entered=100)
    assert at_least.blocks.tolist() == pytest.approx([100, 0, 100, 400, 100])


def test_a_loop_is_rather_entered_by_all_than_turned_in_by_few() -> None:
    """0 may pass by the loop 2, which 1 leads to."""
    loop = FunctionCode(entries=[0], sizes=[1] * 4, successors=[[1, 3], [2], [2, 3], []])
    found = fit(loop, [_seen(2, 1500)], entered=1000)
    assert found.blocks.tolist() == pytest.approx([1000, 1000, 1500, 1000])
    assert found.edges[2, 2] == pytest.approx(500)


def test_counts_of_a_solver_that_gave_up_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: Any, **named: Any) -> Any:
        return linprog(*arguments, **{**named, "method": "highs-ds", "options": {"maxiter": 1}})

    monkeypatch.setattr(block_counts, "linprog", stopped)
    with pytest.raises(FitError, match=r"no counts of 5 blocks: .*[Ii]teration"):
        fit(CODE, [_seen(1, 30), _seen(3, 1000)], entered=100)

    def stopped_late(*arguments: Any, **named: Any) -> Any:
        solved = linprog(*arguments, **named)
        solved.success, solved.message = False, "Time limit reached"
        return solved

    # It has counts then, which may be any.
    monkeypatch.setattr(block_counts, "linprog", stopped_late)
    with pytest.raises(FitError, match="no counts of 5 blocks: Time limit"):
        fit(CODE, [_seen(1, 30), _seen(3, 1000)], entered=100)


def test_nothing_known_is_nothing_executed() -> None:
    assert fit(CODE, []).blocks.tolist() == [0] * 5
