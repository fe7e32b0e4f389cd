# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, CostError
from compiler_opt_perf.cost.regalloc_score import ScoreError
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.rewards import (
    LINKED_TEXT,
    REWARDS,
    UNSUPPORTED,
    Costs,
    charged_total,
    evaluator_reward,
    replayed_costs,
    require_comparable,
)

SIZE, SCORE = REWARDS["text bytes"], REWARDS["RegAllocScore"]
LINKED = REWARDS[LINKED_TEXT]


def test_a_ratio_below_one_is_cheaper() -> None:
    assert SIZE.ratio(Costs({"text": 200.0}), Costs({"text": 150.0}), {}) == 0.75
    default, policy = Costs({"f": 10.0, "g": 1e6}), Costs({"f": 5.0, "g": 1e6})
    # By function, not of the sums; as often as they were called.
    assert SCORE.ratio(default, policy, {}) == pytest.approx(0.5**0.5, rel=1e-3)
    assert SCORE.ratio(default, policy, {"f": 3, "g": 1}) == pytest.approx(0.5**0.75, rel=1e-3)
    with pytest.raises(ScoreError, match="scored functions differ"):
        SCORE.ratio(default, Costs({"f": 5.0}), {})


def test_bytes_add_up_over_modules_and_scores_do_not() -> None:
    totals, ratios, programs = [100.0, 900.0], [0.5, 1.0], ["p", "p"]
    assert SIZE.change(totals, ratios, programs) == pytest.approx(-0.05)
    assert SCORE.change(totals, ratios, programs) == pytest.approx(0.5**0.5 - 1)


def test_copies_count_as_parts_and_programs_are_compared_one_by_one() -> None:
    default = Costs({"f": 100.0, "g": 60.0}, shared=("g",))
    # Three objects have a copy of g, of which the linker keeps one.
    copies = {"g": 1 / 3}
    assert default.weighted(copies) == pytest.approx(120.0)
    policy = Costs({"f": 100.0, "g": 30.0, "h": 4.0})
    assert LINKED.ratio(default, policy, copies) == pytest.approx(114 / 120)
    # The geometric mean over programs of the sums over their modules.
    change = LINKED.change([100.0, 300.0, 50.0], [0.5, 1.0, 1.0], ["p", "p", "q"])
    assert change == pytest.approx((350 / 400 * 1.0) ** 0.5 - 1)


def test_a_run_that_costs_the_same_is_no_better() -> None:
    # The sum of these, less the second, is less than the first.
    default = Costs({"f": 0.1, "g": 0.7}, elsewhere=1e8 + 0.3)
    assert charged_total(default, default) == default.total
    assert SIZE.ratio(default, Costs({"f": 0.1, "g": 0.7}, elsewhere=1e8 + 0.3), {}) == 1.0


def test_code_that_is_lost_is_charged() -> None:
    default = Costs({"f": 100.0, "g": 900.0}, {"f": 10, "g": 90})
    # As it is, and cheaper with all of its executions.
    assert charged_total(default, default) == 1000.0
    assert charged_total(default, Costs({"f": 50.0, "g": 900.0}, {"f": 10, "g": 90})) == 950.0
    # 45% of the executions are lost; the tool would charge them the mean of the others, cheap ones.
    lost = Costs({"f": 50.0, "g": 300.0, "(unmapped blocks)": 45.0}, {"f": 10, "g": 45})
    assert charged_total(default, lost) == 50.0 + 900.0 + 45.0
    # A function that vanished costs what it did, though its caller costs more for it.
    assert charged_total(default, Costs({"f": 300.0}, {"f": 10})) == 300.0 + 900.0
    # What costs more although it lost executions is not made cheaper by the charge.
    assert charged_total(default, Costs({"f": 100.0, "g": 950.0}, {"f": 10, "g": 1})) == 1050.0
    # The reward has the charge.
    assert SIZE.ratio(default, lost, {}) == 0.995


def test_changes_elsewhere_in_the_program_count() -> None:
    # 100 of the module's own and 900 elsewhere; the candidate moves 40 there and saves 10.
    default = Costs({"f": 60.0, "g": 40.0}, {}, elsewhere=900.0)
    policy = Costs({"f": 50.0}, {}, elsewhere=940.0)
    assert charged_total(default, policy) == 90.0
    assert SIZE.ratio(default, policy, {}) == 0.9


def test_instructions_without_a_cost_are_charged_the_mean() -> None:
    functions = [
        {"name": "f", "blocks": [{"executions": 3}, {"executions": 4}]},
        {"name": "g", "blocks": []},
        {"name": "f", "blocks": [{"executions": 1}]},
    ]
    report = {"functions": functions, "instructions": 50.0}
    costs = replayed_costs({"f": 60.0, "g": 40.0}, report)
    assert (costs.total, costs.executions) == (100.0, {"f": 8, "g": 0})
    costs = replayed_costs(
        {"f": 60.0, "g": 40.0}, {**report, "unsupported": {"executions": 10, "opcodes": {}}}
    )
    assert costs.parts[UNSUPPORTED] == 20.0
    assert costs.total == 120.0


def test_each_problem_has_its_reward() -> None:
    assert {problem.reward for problem in PROBLEMS.values()} == set(REWARDS) - {LINKED_TEXT}


@pytest.mark.compiler
def test_an_evaluator_can_be_the_reward(tmp_path: Path) -> None:
    source, target = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text("int f(int x) { return x * 3; }\n")
    run_command([stock_tool("clang"), "-O2", "-c", source, "-o", target])
    size = evaluator_reward(EVALUATORS["size"], Context())
    assert size.measure(target) == REWARDS["text bytes"].measure(target)
    assert size.measure(target).total == text_bytes(target)
    assert size.adds_up and size.way == "replay"
    with pytest.raises(CostError, match="needs llvm-trace-cost and a trace"):
        evaluator_reward(EVALUATORS["count"], Context()).measure(target)


@pytest.mark.parametrize(
    ("problem", "evaluator", "context", "message"),
    [
        (
            "inline-size",
            "count",
            Context(trace=Path("t")),
            "cannot compare policies for inline-size",
        ),
        ("inline-size", "mca", Context(trace=Path("t")), "train without an evaluator"),
        ("regalloc-evict", "count", Context(), "needs the trace"),
        ("regalloc-evict", "mca", Context(trace=Path("t")), "needs a CPU file"),
        ("regalloc-evict", "size", Context(trace=Path("t")), "replays a trace: allocation-score"),
        ("regalloc-evict", "regalloc-score", Context(), "one that replays a trace"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    problem: str, evaluator: str, context: Context, message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        require_comparable(PROBLEMS[problem], EVALUATORS[evaluator], context, {}, ["lua"])
    count = EVALUATORS["count"]
    require_comparable(PROBLEMS["regalloc-evict"], count, Context(trace=Path("t")), {}, ["lua"])


def test_what_is_recorded_need_not_keep_blocks() -> None:
    problem, mca = PROBLEMS["inline-size"], EVALUATORS["mca"]
    context = Context(cpu=Path("c"))
    require_comparable(problem, mca, context, {}, ["lua", "tcc"], ["tcc", "lua"])
    with pytest.raises(TrainingError, match="needs a CPU file"):
        require_comparable(problem, mca, Context(), {}, ["lua"], ["lua"])
    with pytest.raises(TrainingError, match=r"\[runs\]: tcc: the corpus has modules of lua"):
        require_comparable(problem, mca, context, {}, ["lua"], ["lua", "tcc"])
    with pytest.raises(TrainingError, match=r"--trace: is replayed, and the recipe's \[runs\]"):
        require_comparable(problem, mca, context, {"lua": Path("t")}, ["lua"], ["lua"])


def test_each_program_has_its_own_run() -> None:
    problem, programs = PROBLEMS["regalloc-evict"], ["lua", "tcc"]
    traces = {"lua": Path("lua"), "tcc": Path("tcc")}
    require_comparable(problem, EVALUATORS["count"], Context(), traces, programs)
    with pytest.raises(TrainingError, match="--trace: tcc: the corpus has modules of lua; give"):
        require_comparable(problem, EVALUATORS["count"], Context(), traces, ["lua"])
    with pytest.raises(TrainingError, match="--trace: zstd: the corpus has modules of lua, tcc"):
        require_comparable(
            problem, EVALUATORS["count"], Context(), traces, [*programs[:1], "tcc", "zstd"]
        )
