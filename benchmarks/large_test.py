# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import large
from benchmarks.testing import SHARES, program
from compiler_opt_perf.toolchain.installation import Toolchain

_WORK = """
int main(int argc, char **argv) {
  volatile double sink = 0;
  for (int i = 0; i < 4000000; ++i)
    sink = shares(sink + i);
  puts(argv[1]);
  return 0;
}
"""


@pytest.mark.long(20)
@pytest.mark.compiler
def test_policies_are_added_to_thinlto_by_counters(
    packaged: Callable[[str, str], Path], tmp_path: Path, toolchain: Toolchain
) -> None:
    packaged("work", SHARES + _WORK)
    study = functools.partial(
        large.study,
        ["work"],
        tmp_path,
        toolchain,
        rounds=6,
        table={"work": program("work", run="./work {seed}")},
    )
    sums, programs = study(prepare=True)
    names = [row[0] for row in sums.rows]
    assert names[4:6] == ["PGO-ThinLTO", "PGO-ThinLTO and policies"]
    assert [row[1:] for row in programs.rows] == [[row[0], row[1], None] for row in sums.rows]
    configuration = (tmp_path / "work" / "try" / "way-on" / "way.cfg").read_text()
    assert "-fprofile-use=" in configuration and "-flto=thin" in configuration
    assert "-pmu-profile=" in configuration
    sums, programs = study()
    assert all(isinstance(row[-1], tuple) for row in programs.rows)
