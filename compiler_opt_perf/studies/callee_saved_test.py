# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The study of callee-saved registers on one small program."""

from pathlib import Path

import pytest

from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.studies import callee_saved
from compiler_opt_perf.studies.workloads import COUNTED, Workload
from compiler_opt_perf.toolchain.installation import Toolchain

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) void rare(void) { __asm__ volatile(""); }
__attribute__((noinline)) long often(long x, long y) {
  for (int i = 0; i < 2; ++i)
    if (__builtin_expect(x == i, 0)) rare();
  return x * y;
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


def test_a_function_has_the_price_that_is_best_for_it(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calls.c").write_text(SOURCE)
    program = Program(name="calls", source_package="none", sources=("calls.c",))
    monkeypatch.setitem(COUNTED, "calls", lambda _: Workload(program, tmp_path, ("5000",)))
    monkeypatch.setattr(callee_saved, "PROGRAMS", ("calls",))
    monkeypatch.setattr(callee_saved, "PRICES", (0, 262144, 2**30))
    output = tmp_path / "study"
    found = callee_saved.study(["calls"], output, toolchain, levels=["O2"])

    row = found["calls O2"]
    assert list(row) == ["0", "262144", str(2**30)]
    # What hardly calls anything saves registers by default; a loop of calls should have them.
    assert row["262144"]["often"] < row["0"]["often"]
    assert row[str(2**30)]["loop"] > row["262144"]["loop"] == row["0"]["loop"]
    cost = callee_saved.costs(row)
    assert cost.min(1).sum() <= cost.sum(0).min() < cost[:, 0].sum()
    assert callee_saved.document(found)["results"]["calls O2"]["0"]["instructions"] == (
        cost[:, 0].sum()
    )
    text = callee_saved.tables(found)
    assert "| calls O2 |" in text and "(262144)" in text

    before = {path: path.stat().st_mtime_ns for path in output.rglob("predicted.json")}
    assert callee_saved.study(["calls"], output, toolchain, levels=["O2"]) == found
    assert {path: path.stat().st_mtime_ns for path in before} == before
