# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from benchmarks.branch_hints import ARMS, Counted, HintBuilds, Outcome, mark, tables
from benchmarks.results import Cell
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain

_SOURCE = """

int later(int x);
static int many(const int *p, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i)
    if (p[i] > 7)
      sum += p[i];
  return sum;
}
int one(const int *p, int n) {
  if (n > 3) return later(n);
  return many(p, n);
}
"""


def test_marks_the_branches_of_a_function_and_line(tmp_path: Path) -> None:
    source, ir = tmp_path / "a.c", tmp_path / "a.ll"
    source.write_text(_SOURCE)
    flags = ["-O2", "-g", "-Xclang", "-disable-llvm-passes", "-S", "-emit-llvm"]
    run_command([stock_tool("clang"), *flags, source, "-o", ir])
    text = ir.read_text()
    asked = set()

    def wanted(function: str, line: int) -> bool:
        asked.add((function, line))
        return (function, line) == ("many", 3)

    marked, count = mark(text, wanted)
    assert asked == {("many", 2), ("many", 3), ("one", 1)}
    assert count == marked.count(", !unpredictable !") == 1
    assert mark(text, lambda _function, _line: False) == (text, 0)
    # LLVM reads it.
    ir.write_text(marked)
    run_command([stock_tool("clang"), "-O1", "-S", "-emit-llvm", ir, "-o", tmp_path / "b.ll"])
    assert "!unpredictable" in (tmp_path / "b.ll").read_text()


def test_means_are_of_all_programs() -> None:
    def counted(instructions: int) -> Counted:
        return Counted(3, instructions, 2 * instructions)

    found = {
        name: Outcome(
            40.0,
            {"no hints": counted(100)} | dict.fromkeys(ARMS, counted(to)),
            dict.fromkeys(ARMS, (1.0, 0.5, 2.0)),
        )
        for name, to in (("lua", 110), ("tcc", 90))
    }
    counts, time = tables(found)
    assert counts.rows[0][:5] == ["lua", 40.0, 3, 3, 3]
    assert [_number(one) for one in counts.rows[0][5:]] == pytest.approx([10] * 6)
    expected = 100 * ((1.1 * 0.9) ** 0.5 - 1)
    assert [_number(one) for one in counts.rows[-1][5:]] == pytest.approx([expected] * 6, abs=1e-3)
    assert time.rows[0] == ["lua", *[(1.0, 0.5, 2.0)] * 3]


@pytest.mark.long(30)
@pytest.mark.compiler
def test_builds_of_a_program_differ_by_their_hints(toolchain: Toolchain, tmp_path: Path) -> None:
    builds = HintBuilds("lz4", tmp_path, toolchain)
    plain, marked = (builds.counted(name) for name in ("no hints", "all branches"))
    assert plain.marks == 0 and marked.marks > 1000
    assert plain.instructions != marked.instructions
    assert 0 < builds.hard_share < 100


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return cell
