# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections import Counter
from pathlib import Path

from bench_collect import Case
from bench_hits import Compilation, instrumented_profile, lookups, tables

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.pmu.binary import PROFILING_FLAGS
from compiler_opt_perf.pmu.collect import collect
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD

MAIN = """\
int sum(const int *p, int n);
static int scale(const int *p, int n) { return 3 * sum(p, n); }
int unused(const int *p) { return scale(p, 2) + p[3]; }
int main(int argc, char **argv) {
  static int a[100];
  int s = 0;
  for (int i = 0; i < 100; ++i)
    a[i] = argc, s += scale(a, i);
  return s == 0;
}
"""
SUM = """\
int sum(const int *p, int n) {
  int s = 0;
  for (int i = 0; i < n; ++i)
    s += p[i];
  return s;
}
"""


def test_what_a_small_program_finds(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "sum.c").write_text(SUM)
    units = [["-c", "main.c"], ["-c", "sum.c"]]
    binary = tmp_path / "program"
    options = ["-O2", *PROFILING_FLAGS.split(), "-fuse-ld=lld", "-Wl,--build-id"]
    run_command(
        [stock_tool("clang"), *options, "main.c", "sum.c", "-o", binary], cwd=tmp_path, timeout_s=60
    )
    profile = tmp_path / "program.pmu.json"
    collect(binary, [], profile)
    case = Case(binary, [], units, tmp_path)
    counters = instrumented_profile(case, tmp_path / "instrumented")
    tools = Toolchain.load(BUILD / "toolchain" / "mock")
    plain, linked = Compilation(), Compilation(counters=True, thinlto=True)
    results = {
        compilation.name: lookups(case, compilation, tools, profile, counters, tmp_path / "lookups")
        for compilation in (plain, linked)
    }
    found = results[plain.name]
    # Inlined into main, main's and unused's calls; of the last and its load the profile knows
    # nothing.
    assert found["call sites"]["exact"] >= 1
    assert found["call sites"]["unknown function"] >= 1
    assert found["loads"]["exact"] >= 1
    assert found["loads"]["unknown function"] == 1
    assert found["calls"] == Counter()
    assert found["counts"]["loads"] == [1.0, 0.0]
    found = results[linked.name]
    # sum is inlined into main, which it was not in the profiled program. All that ran is found.
    assert found["loads"]["flattened"] >= 1
    assert found["calls"]["exact"] + found["calls"]["flattened"] == found["calls"].total() > 0
    text = tables({"program": results})
    assert "| program | `-O2` + instrumented PGO + ThinLTO | " in text
