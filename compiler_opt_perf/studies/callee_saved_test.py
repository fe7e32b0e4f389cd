# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The studies of callee-saved registers on small programs."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.cost.cpu_files import cpu_file
from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.policies.callee_saved_rule import CalleeSavedRule
from compiler_opt_perf.policies.problem import for_clang
from compiler_opt_perf.studies import callee_saved, callee_saved_policy, callee_saved_time
from compiler_opt_perf.studies.callee_saved import Prices
from compiler_opt_perf.studies.callee_saved_labels import (
    COUNT_INPUTS,
    INPUTS,
    PMU_INPUTS,
    PROBLEM,
    RATE_INPUTS,
    Label,
    ModuleJob,
    Rule,
    cost,
)
from compiler_opt_perf.studies.callee_saved_policy import Taught
from compiler_opt_perf.studies.common import Timing
from compiler_opt_perf.studies.eviction_builds import REPLAYS, REWARDS, SCORE, Level
from compiler_opt_perf.studies.workloads import COUNTED, HELD_OUT, JUDGED, Workload
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) void rare(void) { __asm__ volatile(""); }
__attribute__((noinline)) long often(long x, long y) {
  long sum = 0, n = (x & 1) + 1;
  for (long i = 0; i < n; ++i) {
    if (__builtin_expect(i == y, 0)) rare();
    sum += i ^ x;
  }
  return sum;
}
__attribute__((noinline)) long loop(long n) {
  long sum = 0;
  for (long i = 0; i < n; ++i) { rare(); sum += i * n; }
  return sum;
}
int main(int argc, char **argv) {
  long n = atol(argv[1]), sum = 0;
  for (long i = 0; i < n; ++i) sum += often(i, n);
  printf("%ld\n", sum + loop(n));
}
"""
NAMES = ("calls", "more")
MODEL = REPO_ROOT / "models" / "cost-znver3"
POLICY = REPO_ROOT / "models" / "regalloc-evict"


def _workload(workload: Workload, _: Path) -> Workload:
    return workload


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for both studies, of two programs."""
    tree = tmp_path_factory.mktemp("tree")
    (tree / "calls.c").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        for name, runs in zip(NAMES, (5000, 7000), strict=True):
            program = Program(name=name, source_package="none", sources=("calls.c",))
            for table, more in ((COUNTED, 0), (JUDGED, 1000), (HELD_OUT, 2000)):
                workload = Workload(program, tree, (str(runs + more),))
                patch.setitem(table, name, partial(_workload, workload))
        for module in (callee_saved, callee_saved_policy, callee_saved_time):
            patch.setattr(module, "PROGRAMS", NAMES)
        patch.setattr(callee_saved, "PRICES", (0, 262144, 2**30))
        patch.setattr(callee_saved_policy, "PRICES", (262144,))
        patch.setattr(callee_saved_time, "PRICES", (0, 262144))
        yield tmp_path_factory.mktemp("output")


@pytest.fixture(scope="module")
def results(output: Path, toolchain: Toolchain) -> dict[str, dict[str, Prices]]:
    """What the first program costs, by all evaluators."""

    def study() -> dict[str, dict[str, Prices]]:
        return callee_saved.study(
            ["calls"],
            output,
            toolchain,
            levels=["O2"],
            evaluators=tuple(REPLAYS),
            cpu=cpu_file("znver3"),
            model=MODEL,
        )

    found = study()
    before = {path: path.stat().st_mtime_ns for path in output.rglob("predicted-*.json")}
    assert len(before) == 12
    assert study() == found
    assert {path: path.stat().st_mtime_ns for path in before} == before
    return found


@pytest.fixture(scope="module")
def priced(results: dict[str, dict[str, Prices]]) -> dict[str, dict[str, float]]:
    """What the first program executes, by price and function."""
    return {price: own["functions"] for price, own in results["count"]["calls O2"].items()}


def test_a_function_has_the_price_that_is_best_for_it(
    priced: dict[str, dict[str, float]], results: dict[str, dict[str, Prices]]
) -> None:
    assert list(priced) == ["0", "262144", str(2**30)]
    # What hardly calls anything saves registers by default; a loop of calls should have them.
    assert priced["262144"]["often"] < priced["0"]["often"]
    assert priced[str(2**30)]["loop"] > priced["262144"]["loop"] == priced["0"]["loop"]
    cost = callee_saved.by_function(results["count"]["calls O2"])
    assert cost.min(1).sum() <= cost.sum(0).min() < cost[:, 0].sum()
    assert results["count"]["calls O2"]["0"]["cost"] == pytest.approx(cost[:, 0].sum())
    text = callee_saved.tables({"count": results["count"]})
    assert "| calls O2 |" in text and "(262144)" in text and "±" not in text


def test_cycles_have_an_error(results: dict[str, dict[str, Prices]]) -> None:
    cycles = results["mca-pmu"]["calls O2"]
    # Pushes and pops take time, too, but less than an instruction's share each.
    assert cycles["262144"]["functions"]["often"] < cycles["0"]["functions"]["often"]
    assert cycles["0"]["cost"] < results["count"]["calls O2"]["0"]["cost"]
    assert cycles["0"]["difference"] == 0 < cycles["262144"]["difference"]
    learned = results["learned"]["calls O2"]
    assert learned["262144"]["functions"]["often"] < learned["0"]["functions"]["often"]
    assert learned["0"]["difference"] is None
    text = callee_saved.tables(results)
    assert "cycles (mca-pmu)" in text and "±" in text and "cycles (learned)" in text


def test_prices_and_the_policy_are_timed_in_turns(output: Path, toolchain: Toolchain) -> None:
    def study(rounds: int) -> dict[str, Any]:
        return callee_saved_time.study(
            ["calls"],
            output,
            toolchain,
            POLICY,
            levels=["O2"],
            rounds=rounds,
            layouts=4,
            processor=min(os.sched_getaffinity(0)),
        )

    counted = study(0)
    assert counted["calls O2"].keys() == {"executed"}
    text = callee_saved_time.tables(counted)
    assert "| calls O2 |" in text and "a run" not in text

    assert study(5)["calls O2"]["rounds"] == 5
    found = study(6)
    row = found["calls O2"]
    ways = ["262144", "policy", "policy, shuffled"]
    executed = row["executed"]
    assert list(executed) == ["0", *ways] and executed == counted["calls O2"]["executed"]
    # Of what a price of the first use gains here, the policy gains as much by the profile.
    assert executed["policy"] == executed["262144"] < executed["0"]
    # The first rounds count, each price's code is other code, and a run is of milliseconds.
    assert row["rounds"] == 6 and 0 < row["run_s"] < 1 and list(row["changes"]) == ways
    assert all(low <= value <= high for value, low, high in row["changes"].values())
    layouts = output / "calls" / "O2"
    images = {way: [*(layouts / way / "layouts").iterdir()] for way in ("default", "csr-262144")}
    assert len({path.read_bytes() for paths in images.values() for path in paths}) == 8
    text = callee_saved_time.tables(found)
    assert text.count("| calls O2 |") == 2 and "a run" in text
    # What the profile adds is the quotient of two changes.
    three = {
        f"{name} O2": {"executed": {"0": 1000, "policy": 1000 - less, "policy, shuffled": 1000}}
        for name, less in (("a", 10), ("b", 20), ("c", 30))
    }
    last = callee_saved_time.tables(three).splitlines()[-1]
    mean = "-2.00% (-4.46% to +0.51%)"
    assert last == f"| geometric mean |  | {mean} | +0.00% (+0.00% to +0.00%) | {mean} |"


def test_programs_are_compiled_by_what_others_taught(
    output: Path, priced: dict[str, dict[str, float]], toolchain: Toolchain
) -> None:
    found = callee_saved_policy.study(
        NAMES,
        output,
        toolchain,
        rewards=tuple(REWARDS),
        arms=("none", "shuffled"),
        seeds=1,
        cpu=cpu_file("znver3"),
        model=MODEL,
        timing=Timing(rounds=4, layouts=4, processor=min(os.sched_getaffinity(0))),
    )

    row = found["calls"]
    assert row["costs"]["count"] == pytest.approx(sum(priced["0"].values()))
    # A rule of the price's own decides as the compiler does by that price.
    change = sum(priced["262144"].values()) / row["costs"]["count"] - 1
    assert row["changes"]["count"]["constant 262144"] == [pytest.approx(change)] and change < -0.05
    assert row["changes"]["count"]["count, none"] == [pytest.approx(change)]
    names = ["constant 262144", "rule", "rule, shuffled"]
    names += [f"{reward}, {arm}" for reward in REWARDS for arm in ("none", "shuffled")]
    for program in NAMES:
        for judge in REWARDS:
            assert list(found[program]["changes"][judge]) == names
    # LLVM's score is told of spills, and not of the registers that need no saving for them.
    for judge in REWARDS:
        assert (row["changes"][judge]["constant 262144"][0] < 0) == (judge != SCORE)
    assert row["labels"] > row["paying"]["count"] > 0
    assert (output / "calls/O2/callee-saved/shuffled-1.pmu.json").exists()
    text = callee_saved_policy.tables(found)
    assert text.count("geometric mean") == 6 and text.count("| mca-pmu, shuffled |") == 6
    assert "| time of other inputs | calls | more |" in text

    # What is timed is what was judged: one rule, whoever taught it, is one code.
    timed = row["timed"]
    assert timed["rounds"] == 4 and list(timed["changes"]) == names
    layouts = output / "calls" / "O2"
    first = {
        name: (layouts / name.replace(",", "").replace(" ", "-") / "layouts/0").read_bytes()
        for name in ("default", "constant 262144", "count, none")
    }
    assert first["constant 262144"] == first["count, none"] != first["default"]
    assert timed["changes"]["constant 262144"] == timed["changes"]["count, none"]


def test_the_shipped_policy_is_the_rule(
    output: Path, priced: dict[str, dict[str, float]], toolchain: Toolchain, tmp_path: Path
) -> None:
    assert priced
    level = output / "calls" / "O2"
    (bitcode,) = (path for path in (level / "ir").rglob("*") if path.is_file())
    options = PROBLEM.development_options(model=POLICY, profile=level / "profile.pmu.json")
    environment = {"LLVM_LITERT_LIBRARY": os.fspath(toolchain.litert_library)}

    def compiled(name: str, *words: str | Path) -> bytes:
        flags = ["-O2", "-x", "ir", "-Xclang", "-disable-llvm-passes", *REPLAY_FLAGS]
        command = [toolchain.clang, *flags, "-c", bitcode, "-o", tmp_path / name, *words]
        run_command(command, timeout_s=120, env=environment)
        return (tmp_path / name).read_bytes()

    by_policy = compiled("policy.o", *for_clang(options))
    assert by_policy != compiled("default.o")
    judges = {"count": Level("calls", "O2", level, toolchain, Pool()).judge()}
    module = ModuleJob(toolchain, bitcode, judges, level / "profile.pmu.json")
    by_rule = cost(module, CalleeSavedRule())["count"]
    assert dict(judges["count"].cost([tmp_path / "policy.o"]).parts) == by_rule
    default = cost(module, None)["count"]
    assert by_rule["often"] < default["often"] and by_rule["loop"] == default["loop"]
    # Without a profile, the compiler decides.
    assert compiled("none.o", *for_clang(PROBLEM.development_options(model=POLICY))) == compiled(
        "default.o"
    )


def test_what_is_learnt_deviates_where_labels_say_so() -> None:
    """The price is right but for two kinds, one by executions and one by rates."""
    draw = np.random.default_rng(1)
    labels = []
    for number, price in enumerate(draw.uniform(-3, 8, 400).tolist()):
        rare, missing = (bool(draw.random() < 0.5) for _ in range(2))
        inputs = dict.fromkeys((*INPUTS, *PMU_INPUTS), 0.0) | {"alternative_cost": price}
        inputs[COUNT_INPUTS[0]] = 0.0 if rare else 10.0 + price
        inputs[RATE_INPUTS[0]] = 0.5 if missing else -1.0
        excess = {"count": 1.0 if rare or price < 4 else -1.0, "mca-pmu": 1.0 if missing else -1.0}
        own = Label(f"f{number} %{number} saved #0", excess, inputs)
        labels.append(Taught("program", own, 1000.0))

    def share(rule: Rule, reward: str) -> float:
        return float(
            np.mean([rule(one.label.inputs) == (one.label.excess[reward] > 0) for one in labels])
        )

    def shares(reward: str) -> dict[str, float]:
        arms = callee_saved_policy.ARMS.items()
        return {
            name: share(callee_saved_policy.fit(labels, reward, arm), reward) for name, arm in arms
        }

    constant = callee_saved_policy.Constant()
    by_count, by_cycles = shares("count"), shares("mca-pmu")
    assert min(by_count["counts only"], by_count["all"]) > 0.97 and share(constant, "count") < 0.9
    assert max(by_count["none"], by_count["rates only"]) < 0.97
    assert min(by_cycles["rates only"], by_cycles["all"]) > 0.97
    assert max(by_cycles["none"], by_cycles["counts only"]) < 0.7

    drawn = callee_saved_policy.resampled(labels, 1)
    assert drawn == callee_saved_policy.resampled(labels, 1)
    assert drawn != callee_saved_policy.resampled(labels, 2)
    # Of functions drawn with replacement, a third is missing.
    assert 0.55 < len({one.label.key for one in drawn}) / len(labels) < 0.7
