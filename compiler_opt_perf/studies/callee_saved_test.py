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
from compiler_opt_perf.studies import callee_saved, callee_saved_policy, callee_saved_time
from compiler_opt_perf.studies.callee_saved_labels import INPUTS, PMU_INPUTS, Label, Rule
from compiler_opt_perf.studies.workloads import COUNTED, TIMED, Workload
from compiler_opt_perf.toolchain.installation import Toolchain

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


def _workload(workload: Workload, _: Path) -> Workload:
    return workload


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for both studies, of two programs."""
    tree = tmp_path_factory.mktemp("tree")
    (tree / "calls.c").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        for name, runs in zip(NAMES, ("5000", "7000"), strict=True):
            program = Program(name=name, source_package="none", sources=("calls.c",))
            for table in (COUNTED, TIMED):
                patch.setitem(table, name, partial(_workload, Workload(program, tree, (runs,))))
        for module in (callee_saved, callee_saved_policy, callee_saved_time):
            patch.setattr(module, "PROGRAMS", NAMES)
        patch.setattr(callee_saved, "PRICES", (0, 262144, 2**30))
        patch.setattr(callee_saved_policy, "PRICES", (262144,))
        patch.setattr(callee_saved_time, "PRICES", (0, 262144))
        yield tmp_path_factory.mktemp("output")


@pytest.fixture(scope="module")
def priced(output: Path, toolchain: Toolchain) -> dict[str, dict[str, float]]:
    """What the first program executes, by price and function."""
    found = callee_saved.study(["calls"], output, toolchain, levels=["O2"])
    before = {path: path.stat().st_mtime_ns for path in output.rglob("predicted.json")}
    assert callee_saved.study(["calls"], output, toolchain, levels=["O2"]) == found
    assert {path: path.stat().st_mtime_ns for path in before} == before
    return dict(found["calls O2"])


def test_a_function_has_the_price_that_is_best_for_it(priced: dict[str, dict[str, float]]) -> None:
    assert list(priced) == ["0", "262144", str(2**30)]
    # What hardly calls anything saves registers by default; a loop of calls should have them.
    assert priced["262144"]["often"] < priced["0"]["often"]
    assert priced[str(2**30)]["loop"] > priced["262144"]["loop"] == priced["0"]["loop"]
    cost = callee_saved.costs(priced)
    assert cost.min(1).sum() <= cost.sum(0).min() < cost[:, 0].sum()
    document = callee_saved.document({"calls O2": priced})["results"]
    assert document["calls O2"]["0"]["instructions"] == cost[:, 0].sum()
    text = callee_saved.tables({"calls O2": priced})
    assert "| calls O2 |" in text and "(262144)" in text


def test_prices_are_timed_in_turns(output: Path, toolchain: Toolchain) -> None:
    def study(rounds: int) -> dict[str, Any]:
        processor = min(os.sched_getaffinity(0))
        return callee_saved_time.study(
            ["calls"], output, toolchain, levels=["O2"], rounds=rounds, processor=processor
        )

    before = study(5)["calls O2"]
    assert (before["rounds"], before["changes"].keys()) == (5, {"262144"})
    found = study(6)
    row = found["calls O2"]
    value, low, high = row["changes"]["262144"]
    # The first rounds count, each price's code is other code, and a run is of milliseconds.
    assert row["rounds"] == 6 and low <= value <= high and 0 < row["run_s"] < 1
    layouts = output / "calls" / "O2"
    images = {path.read_bytes() for path in layouts.glob("*/layouts/*")}
    assert len(images) == 10
    assert "| calls O2 |" in callee_saved_time.table(found)


def test_programs_are_compiled_by_what_others_taught(
    output: Path, priced: dict[str, dict[str, float]], toolchain: Toolchain
) -> None:
    found = callee_saved_policy.study(NAMES, output, toolchain)

    row = found["calls"]
    assert row["instructions"] == pytest.approx(sum(priced["0"].values()))
    # A rule of the price's own decides as the compiler does by that price.
    change = sum(priced["262144"].values()) / row["instructions"] - 1
    assert row["changes"]["constant"] == pytest.approx(change) and change < -0.05
    assert row["changes"]["learned"] == pytest.approx(change)
    assert row["changes"].keys() == found["more"]["changes"].keys()
    assert row["labels"] > row["paying"] > 0
    text = callee_saved_policy.table(found)
    assert "learned with PMU" in text and "geometric mean" in text


def test_what_is_learnt_deviates_where_labels_say_so() -> None:
    """The price is right but for one kind, which only the profile knows."""
    draw = np.random.default_rng(1)
    labels = []
    for cost in draw.uniform(-3, 8, 400).tolist():
        rare = bool(draw.random() < 0.5)
        inputs = dict.fromkeys((*INPUTS, *PMU_INPUTS), 0.0) | {"alternative_cost": cost}
        inputs["pmu_alternative_executions"] = 0.0 if rare else 10.0 + cost
        labels.append((Label("f", 1.0 if rare or cost < 4 else -1.0, inputs), 1000.0))
    constant = callee_saved_policy.Constant()
    with_pmu, without = (callee_saved_policy.fit(labels, with_pmu=one) for one in (True, False))

    def share(rule: Rule) -> float:
        return float(np.mean([rule(one.inputs) == (one.excess > 0) for one, _ in labels]))

    assert share(with_pmu) > 0.97 > share(without) and share(constant) < 0.9
    frequent = labels[0][0].inputs | {"alternative_cost": 3.0, "pmu_alternative_executions": 15.0}
    assert constant(frequent) and not callee_saved_policy.Measured()(frequent)
