# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import inline_labels
from benchmarks.inline_labels import tables
from benchmarks.programs.forty import Made
from benchmarks.results import Cell
from benchmarks.testing import SHARES, labels_by_executions, program
from benchmarks.thin_labels import resolved_changes
from compiler_opt_perf.blocks.cpu_files import cpu_file
from compiler_opt_perf.toolchain.installation import Toolchain

_WORK = """
double other(double x);
int main(int argc, char **argv) {
  volatile double sink = 0;
  for (int c; (c = getchar()) != EOF;) {
    sink = other(shares(shares(shares(sink + c))));
    // With two counts only, the compiler takes the hot one as cold, too.
    if (c == 'e')
      sink = other(sink) + atof(argv[1]);
  }
  printf("%s\\n", argv[1]);
  return 0;
}
"""
# In an archive; the thin link imports it.
_OTHER = "double other(double x) { return x * 1.5 + 2; }\n"


@pytest.mark.long(30)
@pytest.mark.compiler
def test_decisions_after_the_thin_link_are_judged_by_recorded_runs(
    packaged: Callable[[str, str], Path], tmp_path: Path, toolchain: Toolchain
) -> None:
    tree = packaged("work", SHARES + _WORK)
    (tree / "other.c").write_text(_OTHER)
    build = "cc -c other.c && ar rcs libother.a other.o && cc work.c libother.a -o work"
    run = "cat {inputs}/text {inputs}/text | ./work first > out && cat out"
    inputs = [Made("text", "text", 400000)]
    table = {"work": program("work", build=build, run=run, inputs=inputs)}
    study = functools.partial(
        inline_labels.study, ["work"], tmp_path, toolchain, cpu=cpu_file("znver3"), table=table
    )
    labels, learnt = study()
    ((name, decisions, *counts),) = labels.rows
    assert name == "work" and isinstance(decisions, int) and decisions >= 2
    # By judge: how many save, what they save, and how many cost something.
    (cycles_save, _, cycles_cost), (save, _, cost) = counts[:3], counts[3:]
    assert isinstance(cycles_save, int) and isinstance(cycles_cost, int)
    assert cycles_save + cycles_cost >= 1
    # Calls in a loop are instructions.
    assert save == 0 and isinstance(cost, int) and cost >= 1
    # Nobody can learn from other programs where there are none.
    assert {row[-1] for row in learnt.rows if row[1] != "all that save"} == {0.0}
    assert study()[0].rows == labels.rows


def test_changes_are_against_the_median_beyond_chance() -> None:
    # The compiler's own decisions happen to make a slow build.
    costs = [(1010.0, 0.0), *[(1000.0 + chance, 0.0) for chance in (-1, 0, 0, 1, 1)], (990.0, 0.0)]
    assert resolved_changes(costs) == [0.0] * 5 + [pytest.approx(-10_000, rel=0.01)]
    # Within two standard errors.
    assert resolved_changes([(1000.0, 3.0), (1000.0, 3.0), (1008.0, 3.0)]) == [0.0, 0.0]


def test_trees_are_judged_by_programs_of_which_they_know_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inline_labels, "SEEDS", (1,))
    monkeypatch.setattr(inline_labels, "COUNTS", (None,))
    labels = labels_by_executions(["a", "b", "c", "d"])
    found, learnt = tables({"count": labels})
    assert [row[:2] for row in found.rows] == [[one.module, 300] for one in labels]
    changes: dict[Cell, float] = {}
    for row in learnt.rows:
        assert isinstance(row[-1], tuple)
        changes[row[1]] = row[-1][0]
    possible = changes.pop("all that save")
    assert list(changes) == ["static", "static and executions", "all", "all, exchanged"]
    for seeing in ("static and executions", "all"):
        assert changes[seeing] < 0.9 * possible < 0
    for blind in ("static", "all, exchanged"):
        assert changes[blind] > 0.3 * possible
