# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.hits import (
    Compilation,
    instrumented_profile,
    lookups,
    readable,
    tables,
)
from benchmarks.programs.workload import Built
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD

MAIN = """\
int printf(const char *, ...);
int sum(const int *p, int n);
static int scale(const int *p, int n) { return 3 * sum(p, n); }
int unused(const int *p) { return scale(p, 2) + p[3]; }
int main(int argc, char **argv) {
  static int a[100];
  int s = 0;
  for (int i = 0; i < 100; ++i) {
    a[i] = argc, s += scale(a, i);
    if (argc > 9)
      printf("%d %d %d\\n", s, a[argc], a[2 * argc]);
  }
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


@pytest.fixture
def case(tmp_path: Path) -> Built:
    """A program of two files, in `tmp_path`; it is not linked yet."""
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "sum.c").write_text(SUM)
    return Built(tmp_path / "program", [], [["-c", "main.c"], ["-c", "sum.c"]], tmp_path)


def profile_of(case: Built, *options: str) -> Path:
    """Links the program for profiling and runs it."""
    shared = ["-O2", *PROFILING_FLAGS.split(), "-fuse-ld=lld", "-Wl,--build-id"]
    sources = ["main.c", "sum.c"]
    command = [str(stock_tool("clang")), *shared, *options, *sources, "-o", str(case.binary)]
    run_command(command, cwd=case.directory, timeout_s=60)
    manifest = case.directory / "program.pmu.json"
    collect(case.binary, [], manifest)
    return manifest


def tools() -> Toolchain:
    return Toolchain.load(BUILD / "toolchain" / "mock")


@pytest.mark.compiler
def test_what_a_small_program_finds(case: Built) -> None:
    profile = profile_of(case)
    counters = instrumented_profile(case, case.directory / "instrumented")
    plain, linked = Compilation(), Compilation(counters=True, thinlto=True)
    results = {
        compilation.name: lookups(
            case, compilation, tools(), profile, counters, case.directory / "lookups"
        )
        for compilation in (plain, linked)
    }
    found = results[plain.name]
    # The calls of scale, one of them in a function that is known not to have run, as one of the
    # loads is.
    assert found["call sites"] == Counter({"exact": 2})
    assert found["loads"]["exact"] >= 1
    assert found["loads"]["cold"] == 1
    assert found["calls"] == Counter()
    assert found["counts"]["loads"] == [1.0, 0.0]
    found = results[linked.name]
    # sum is inlined into main, which it was not in the profiled program. All that ran is found.
    assert found["loads"]["flattened"] >= 1
    assert found["calls"]["exact"] + found["calls"]["flattened"] == found["calls"].total() > 0
    shown, missed = tables({"program": results})
    names = ["program, -O2", "program, -O2 + instrumented PGO + ThinLTO"]
    assert [row[0] for row in shown.rows] == names
    exact = [column.name for column in shown.columns].index("call sites, exact")
    # No call was weighted; nothing of "call sites" is missing.
    assert shown.rows[0][exact : exact + 4] == [100, 0, None, None]
    assert missed.rows[0][1:6] == [0, 0, 0, 0, 0]


@pytest.mark.compiler
@pytest.mark.parametrize("kind", ["linked", "split"])
def test_profiled_program_with_other_names(case: Built, kind: str) -> None:
    options = {
        # sum, in another module, is inlined; scale has a name of its own, and a mangled one.
        "linked": ("-flto=thin", "-funique-internal-linkage-names"),
        # What did not run is in main.cold.
        "split": ("-fsplit-machine-functions", "-mllvm", "-enable-fs-discriminator"),
    }[kind]
    if kind == "split":
        counters = instrumented_profile(case, case.directory / "instrumented")
        options += (f"-fprofile-use={counters}",)
    profile = profile_of(case, *options)
    symbols = run_command([stock_tool("llvm-nm"), case.binary], timeout_s=60).stdout
    assert ("main.cold" in symbols) == (kind == "split")
    found = lookups(case, Compilation(), tools(), profile, None, case.directory / "lookups")
    assert found["loads"]["exact"] + found["loads"]["flattened"] >= 1
    # One load is in a function that did not run: known to be cold or, where the profiled program
    # had nothing left of it, unknown.
    assert found["loads"].total() == found["loads"]["exact"] + found["loads"]["flattened"] + 1
    assert found["loads"]["unknown function"] + found["loads"]["cold"] == 1


def test_marks_of_blocks_whose_address_is_taken_are_removed() -> None:
    mark = 'ir-block-address-taken %ir-block."a, b"'
    assert readable(f"  bb.1.x ({mark}):\n") == "  bb.1.x:\n"
    assert readable(f"  bb.1 ({mark}, align 16):\n") == "  bb.1 (align 16):\n"
    assert readable(f"  bb.1 (%ir-block.2, {mark}):\n") == "  bb.1 (%ir-block.2):\n"
