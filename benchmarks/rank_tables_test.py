# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import numpy as np
import pytest

from benchmarks.rank_tables import Ranked, tables
from benchmarks.ranking import Measured


def test_tables_rank_evaluators() -> None:
    levels = np.array([1.0, 1.1, 1.2, 1.3])
    noise = np.random.default_rng(3).normal(1, 0.001, (6, 4))
    predictions = {"regalloc-score": levels[::-1], "count": levels, "mca": levels**2}
    predictions["mca-pmu"] = levels
    ranked = Ranked(
        "p",
        ("default", "b", "c", "d"),
        Measured((levels * noise)[:, :, None], (0, 1, 2) * 2),
        rounds=6,
        layouts=3,
        predictions=predictions,
        evaluation_s={"mca-pmu": 0.5, "run": 2.0},
        run_s=2.0,
    )
    found = {table.name: table for table in tables([ranked])}
    (facts,) = found["programs"].rows
    assert facts[:5] == ["p", 2.0, 4, 6, 3] and facts[7:] == [6, 6]
    assert facts[5:7] == [0, pytest.approx(30, abs=0.3)]
    by_evaluator = {row[0]: row[1] for row in found["tau"].rows}
    assert by_evaluator["regalloc-score"] == (-1, -1, -1) and by_evaluator["mca"] == (1, 1, 1)
    assert found["lead"].rows[0] == ["regalloc-score", (2, 2, 2), 2]
    assert found["evaluation"].rows == [["mca-pmu", 0.25]]
    assert [row[1] for row in found["variants"].rows] == ["default", "b", "c", "d"]
    assert found["variants"].rows[3][4] == pytest.approx(30)
