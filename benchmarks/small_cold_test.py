# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import small_cold
from benchmarks.programs.forty import Made
from benchmarks.testing import SHARES, program
from compiler_opt_perf.toolchain.installation import Toolchain

# `unrolled` does not run: with -Os it shrinks, and as cold code, too.
_WORK = """
int values[64];
__attribute__((noinline)) void unrolled(int by) {
  for (int i = 0; i < 64; ++i)
    values[i] = values[i] * by + (values[(i + by) & 63] ^ i);
}
int main(int argc, char **argv) {
  volatile double sink = 0;
  for (int i = 0; i < 4000000; ++i)
    sink = shares(sink + i);
  if (argc > 2)
    unrolled(argc);
  char line[80];
  FILE *file = fopen(argv[1], "r");
  puts(file ? fgets(line, sizeof line, file) : "none");
  return 0;
}
"""
_WORKER = program("work", run="./work {inputs}/words", inputs=[Made("words", "keywords", 9)])


@pytest.mark.long(10)
@pytest.mark.compiler
def test_builds_are_timed_on_an_input_that_was_not_profiled(
    packaged: Callable[[str, str], Path], tmp_path: Path, toolchain: Toolchain
) -> None:
    packaged("work", SHARES + _WORK)
    folder = tmp_path / "folder"
    study = functools.partial(
        small_cold.study, ["work"], folder, toolchain, rounds=6, table={"work": _WORKER}
    )
    sums, programs = study(prepare=True)
    assert [row[0] for row in sums.rows[-2:]] == [
        "AutoFDO-small-cold",
        "AutoFDO-small-cold, to AutoFDO",
    ]
    changes = [row[1] for row in sums.rows if isinstance(row[1], float)]
    _, smallest, autofdo, small_cold_code, alone = changes
    assert smallest < -5 and small_cold_code < autofdo - 5
    assert 100 + small_cold_code == pytest.approx((100 + autofdo) * (1 + alone / 100), abs=0.01)
    assert [row[-1] for row in programs.rows] == [None] * 5
    sums, programs = study()
    assert all(isinstance(row[-1], tuple) for row in programs.rows)
    profiled, timed = sorted((folder / "work").glob("inputs-*"))
    assert (profiled / "words").read_text() != (timed / "words").read_text()
    assert str(timed) in (folder / "work" / "rounds-small-cold.json").read_text()
