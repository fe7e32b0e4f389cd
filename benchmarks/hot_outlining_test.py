# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from benchmarks.hot_outlining import LIMITS, Outcome, study, tables
from compiler_opt_perf.toolchain.installation import Toolchain


def _outcome(text: float) -> Outcome:
    by_limit = {limit: float(text + limit) for limit in LIMITS}
    times = {0: (2.0, 1.0, 3.0), 8: (0.0, -1.0, 1.0), 0.5: (0.0, -1.0, 1.0)}
    return Outcome(by_limit, by_limit, dict.fromkeys(LIMITS, 1.0), times)


def test_programs_that_chose_the_limit_and_those_that_judge_it_are_apart() -> None:
    limits, programs = tables({"bzip2": _outcome(-5), "lua": _outcome(-3), "lz4": _outcome(-3)})
    rows = [tuple(row[:4]) for row in limits.rows]
    assert rows[:2] == [("chose the limit", 1, "no limit", -5), ("chose the limit", 1, "32", 27)]
    assert rows[len(LIMITS)] == ("judge it", 2, "no limit", -3)
    assert len(rows) == 2 * len(LIMITS)
    assert tuple(programs.rows[0]) == (
        "bzip2",
        "choice",
        -5,
        3,
        -4.5,
        1,
        1,
        1,
        (2, 1, 3),
        (0, -1, 1),
        (0, -1, 1),
    )


@pytest.mark.compiler
def test_a_lower_limit_outlines_less_of_a_hot_loop(toolchain: Toolchain, tmp_path: Path) -> None:
    limits, programs = study(["bzip2"], tmp_path, toolchain, 5, 0, prepare=False)
    cells = [[cell for cell in row[3:] if isinstance(cell, float)] for row in limits.rows]
    text, _, executed = map(list, zip(*cells, strict=True))
    assert len(text) == len(executed) == len(LIMITS)
    assert text == sorted(text)
    # 6% and 0.05%.
    assert executed[0] > 4
    assert executed[-1] < 1
    assert {len(row) for row in programs.rows} == {11}
