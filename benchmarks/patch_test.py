# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import patch
from benchmarks.patch import Outcome
from benchmarks.results import Interval
from benchmarks.testing import SHARES, program
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.ways import SPEED

# Plain inlines `first` into `counted`. Without the counts, the loader takes its call as never
# executed, and `counted` as a function that mostly returns 0.
_WORK = """
static int first(const int *list) {
  return list[0] + list[1];
}
__attribute__((noinline)) int counted(const int *list) {
  if (!list)
    return 0;
  return first(list);
}
int main(int argc, char **argv) {
  volatile double sink = 0;
  int list[2] = {argc, argc};
  int sum = 0;
  for (int i = 0; i < 20000; ++i) {
    sum += counted(list);
    for (int j = 0; j < 200; ++j)
      sink = shares(sink + j);
  }
  printf("%d\\n", sum);
  return 0;
}
"""
# No call.
_SAME = """
int main(void) {
  volatile double sink = 0;
  for (int i = 0; i < 4000000; ++i)
    sink = shares(sink + i);
  return 0;
}
"""


_TABLE = {"calls": program("calls"), "same": program("same", set="choose")}


def _without_counts(toolchain: Toolchain, folder: Path) -> Toolchain:
    """The tools without a patch: scripts that switch it off."""
    folder.mkdir()
    for name in ("clang", "clang++"):
        script = folder / name
        script.write_text(
            f'#!/bin/sh\nexec {toolchain.clang.with_name(name)} "$@" '
            "-mllvm -sample-profile-count-uninlined-calls=false\n"
        )
        script.chmod(0o755)
    return dataclasses.replace(toolchain, clang=folder / "clang")


@pytest.mark.long(40)
@pytest.mark.compiler
def test_programs_whose_code_differs_are_counted_and_timed(
    packaged: Callable[[str, str], Path], tmp_path: Path, toolchain: Toolchain
) -> None:
    for name, text in (("calls", _WORK), ("same", _SAME)):
        packaged(name, SHARES + text)
    folder = tmp_path / "folder"
    folder.mkdir()
    study = functools.partial(
        patch.study,
        tuple(_TABLE),
        folder,
        toolchain,
        _without_counts(toolchain, tmp_path / "earlier"),
        ways=SPEED[1:2],
        rounds=6,
        table=_TABLE,
    )
    sums, programs = study(prepare=True)
    assert [row[:2] for row in sums.rows] == [["AutoFDO", 1]]
    (row,) = programs.rows
    assert row[:2] == ["calls", "AutoFDO"] and row[4:] == [None, None, None]
    assert isinstance(row[3], float) and abs(row[3]) < 1
    before = (folder / "calls" / "try" / "new-00" / "built.json").stat().st_mtime_ns
    sums, programs = study()
    assert (folder / "calls" / "try" / "new-00" / "built.json").stat().st_mtime_ns == before
    assert programs.rows[0][:4] == row[:4]
    assert all(isinstance(cell, tuple) for cell in programs.rows[0][4:])


def test_programs_whose_code_stays_count_as_unchanged() -> None:
    times: tuple[Interval, ...] = ((-10.0, -11.0, -9.0), (5.0, 4.0, 6.0), (-5.5, -6.0, -5.0))
    found = {("calls", "AutoFDO"): Outcome(text=-2.0, instructions=-19.0, times=times)}
    sums, programs = patch.tables(found, 2, SPEED[1:2])
    (row,) = sums.rows
    ten, five = pytest.approx(-10.0), pytest.approx(-5.132, abs=1e-3)
    assert row == ["AutoFDO", 1, pytest.approx(-1.005, abs=1e-3), ten, five, 1, 0]
    assert programs.rows == [["calls", "AutoFDO", -2.0, -19.0, *times]]
