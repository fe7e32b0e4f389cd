# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import constants
from benchmarks.constants import SETTINGS, Outcome, best_change
from benchmarks.testing import SHARES, program
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.ways import PGO

# Cold calls of a function that is too large for LLVM's thresholds of such, and of calls before
# counters are placed.
_WORK = """
static int values[9];
__attribute__((noinline)) static int mixed(int x) { return x * 7 % 1000; }
static int seldom(int x) {
  values[x & 7] = mixed(values[1] + x) + mixed(x) + mixed(values[3] ^ x);
  return values[x & 7] + mixed(values[8]);
}
int main(int argc, char **argv) {
  volatile double sink = 0;
  int sum = 0;
  for (int i = 0; i < 4000000; ++i) {
    sink = shares(sink + i);
    if (i % 2000000 == 1999999)
      sum += seldom(sum + i);
  }
  if (argc > 1)
    sum += seldom(argc);
  printf("%d\\n", sum);
  return 0;
}
"""


@pytest.mark.long(15)
@pytest.mark.compiler
def test_builds_by_other_constants_are_compared_with_llvms(
    packaged: Callable[[str, str], Path], tmp_path: Path, toolchain: Toolchain
) -> None:
    packaged("work", SHARES + _WORK)
    folder = tmp_path / "folder"
    table = {"work": program("work", set="choose")}
    study = functools.partial(
        constants.study, ["work"], folder, toolchain, ways=PGO[:1], rounds=6, table=table
    )
    sums, programs = study(prepare=True)
    names = [setting.name for setting in SETTINGS]
    assert [row[0] for row in sums.rows] == [*names, "best of each program"]
    text = {row[0]: row[-1] for row in sums.rows}
    larger = text.pop("cold calls as others")
    assert isinstance(larger, float) and larger > 0
    # Neither a hot call nor a loop in a loop.
    assert {text["hot calls 9000"], text["rare loops peeled"]} == {0.0}
    assert programs.rows == [["work", "PGO", *[None] * (1 + len(SETTINGS))]]
    sums, programs = study()
    assert all(isinstance(row[1], float) for row in sums.rows)
    assert all(isinstance(cell, tuple) for cell in programs.rows[0][2:])


def test_the_best_setting_is_judged_by_rounds_that_did_not_choose_it() -> None:
    # The second is better in all rounds, the third in the even ones only.
    always = [[1.0] * 4, [0.9] * 4]
    assert best_change(always) == pytest.approx(-10.0)
    assert best_change([*always, [0.5, 1.5, 0.5, 1.5]]) == pytest.approx(
        100 * ((1.5 * 0.9) ** 0.5 - 1), abs=1e-3
    )
    # LLVM's own constants may be best.
    assert best_change([[1.0] * 4, [1.1] * 4]) == 0


def test_settings_are_summed_over_programs_that_were_timed() -> None:
    none = [0.0] * len(SETTINGS)
    slower = (4.0, 3.0, 5.0)
    timed = Outcome(none, (1.0, 0.5, 1.5), [slower] * len(SETTINGS), -2.0)
    (sums, _) = constants.tables({("a", "PGO"): timed, ("b", "PGO"): Outcome([5.0, *none[1:]])})
    assert sums.rows[0] == [SETTINGS[0].name, 4.0, 0, 1, pytest.approx(2.4695, abs=1e-4)]
    assert sums.rows[-1] == ["best of each program", -2.0, None, None, None]
