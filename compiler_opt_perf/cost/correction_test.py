# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of corrections: what cannot be used is named."""

import json
from pathlib import Path

import pytest

from compiler_opt_perf.cost.correction import (
    INPUTS,
    Correction,
    read_correction,
    write_correction,
)
from compiler_opt_perf.cost.evaluator import CostError
from compiler_opt_perf.run.json_text import JsonError
from compiler_opt_perf.toolchain.layout import REPO_ROOT

WEIGHTS = dict(zip(INPUTS, (0.9, 1.1, 0.3, 0.2, 0.5, 2.0, 0.4), strict=True))


@pytest.mark.parametrize(
    ("name", "evaluator", "cpu"),
    [
        ("cost-znver3", "granite", "znver3"),
        ("cost-icelake-server", "granite", "icelake-server"),
        ("cost-icelake-server-pmu", "granite-pmu", "icelake-server"),
    ],
)
def test_the_shipped_ones_are_of_the_shipped_models(name: str, evaluator: str, cpu: str) -> None:
    found = read_correction(REPO_ROOT / "models" / name / "correction.json")
    found.require(evaluator, cpu)
    assert len(found.programs) >= 10
    # A cycle of blocks is mostly a cycle, and more than half of what misses wait is hidden.
    assert 0.5 < found.weights["blocks"] < 1.5
    assert found.weights["last-level misses"] < 0.5


def test_a_file_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "correction.json"
    written = Correction(evaluator="granite", mcpu="znver3", weights=WEIGHTS, programs=("lua",))
    write_correction(path, written)
    assert read_correction(path) == written
    document = json.loads(path.read_text())
    for damage, error, message in (
        ({"version": 2}, JsonError, "version"),
        ({"weights": {**WEIGHTS, INPUTS[1]: -1.0}}, JsonError, "weights"),
        ({"weights": {INPUTS[0]: 1.0}}, CostError, "expected weights of blocks, mispredictions"),
    ):
        path.write_text(json.dumps(document | damage))
        with pytest.raises(error, match=message):
            read_correction(path)
    with pytest.raises(CostError, match="cannot be read"):
        read_correction(tmp_path / "none.json")
