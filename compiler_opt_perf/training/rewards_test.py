# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.cost.evaluator import Context, CostError
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.training.rewards import REWARDS, evaluator_reward, gain, overall_gain


def test_gain_is_the_share_saved_over_common_parts() -> None:
    assert gain({"text": 200.0}, {"text": 150.0}) == pytest.approx(0.25)
    assert gain({"f": 10.0, "g": 30.0}, {"f": 20.0, "g": 30.0}) == pytest.approx(-0.25)
    assert gain({"f": 10.0, "only default": 5.0}, {"f": 5.0, "only policy": 9.0}) == 0.5
    assert gain({"f": 0.0}, {"f": 1.0}) == 0.0
    assert gain({}, {"f": 1.0}) == 0.0


def test_bytes_add_up_over_modules_and_scores_do_not() -> None:
    defaults = [{"text": 100.0}, {"text": 900.0}]
    policies = [{"text": 50.0}, {"text": 900.0}]
    assert overall_gain(REWARDS["text bytes"], defaults, policies) == pytest.approx(0.05)
    assert overall_gain(REWARDS["RegAllocScore"], defaults, policies) == pytest.approx(0.25)


def test_each_problem_has_its_reward() -> None:
    assert {problem.reward for problem in PROBLEMS.values()} == set(REWARDS)


def test_an_evaluator_can_be_the_reward(tmp_path: Path) -> None:
    source, target = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text("int f(int x) { return x * 3; }\n")
    run_command([stock_tool("clang"), "-O2", "-c", source, "-o", target])
    size = evaluator_reward("size", Context())
    assert size.measure(target) == REWARDS["text bytes"].measure(target)
    assert size.measure(target) == {"text": text_bytes(target)}
    cycles = evaluator_reward("mca-pmu", Context())
    assert cycles.name == "mca-pmu cycles" and cycles.adds_up
    with pytest.raises(CostError, match="a trace"):
        cycles.measure(target)
