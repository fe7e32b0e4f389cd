# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from pathlib import Path

import numpy as np

from compiler_opt_perf.compare.ranking import Ranked
from compiler_opt_perf.pages.ranking import write


def test_reports_rank_evaluators(tmp_path: Path) -> None:
    levels = np.array([1.0, 1.1, 1.2, 1.3])
    noise = np.random.default_rng(3).normal(1, 0.001, (6, 4))
    predictions = {"regalloc-score": levels[::-1], "count": levels, "mca": levels**2}
    predictions["mca-pmu"] = levels
    evaluation = {"mca-pmu": 0.5, "run": 2.0}
    names = ("default", "b", "c", "d")
    program = Ranked(
        "p", names, (levels * noise)[:, :, None], (0, 1, 2) * 2, predictions, evaluation, 2.0
    )
    text = write([program], tmp_path)
    assert "| p | 2.00 s | 4 | 6 | 3 | +0.0% to +30.0% | 6 of 6 |" in text.replace("30.1", "30.0")
    assert "| regalloc-score | -1.00 (-1.00 to -1.00) |" in text
    assert "| mca-pmu | 0.25 |" in text
    results = json.loads((tmp_path / "results.json").read_text())["p"]["evaluators"]
    assert results["regalloc-score"]["lead_of_mca-pmu"] == [2, 2, 2]
