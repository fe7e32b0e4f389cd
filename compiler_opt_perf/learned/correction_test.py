# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Corrections of cycles: weights are found again, and what cannot be used is named."""

import json
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.cost.evaluator import CostError
from compiler_opt_perf.execution.json_text import JsonError
from compiler_opt_perf.learned.correction import (
    INPUTS,
    Correction,
    Run,
    corrected,
    fit,
    left_out,
    read_correction,
    write_correction,
)

WEIGHTS = dict(zip(INPUTS, (0.9, 1.1, 0.3, 0.2, 0.5, 2.0, 0.4), strict=True))


def runs(programs: int, noise: float = 0.0) -> list[Run]:
    """Two of each program, of very different length; blocks make up the most."""
    random = np.random.default_rng(1)
    found = []
    for number in range(2 * programs):
        length = 10.0 ** random.uniform(6, 9)
        shares = dict(zip(INPUTS, random.uniform(0, 0.3, len(INPUTS)), strict=True))
        inputs = {name: length * share for name, share in shares.items()} | {INPUTS[0]: length}
        measured = sum(WEIGHTS[name] * cycles for name, cycles in inputs.items())
        measured *= np.exp(random.normal(0, noise))
        found.append(Run(f"program {number // 2}", inputs, measured))
    return found


def test_weights_are_found_again() -> None:
    known = runs(15)
    assert fit(known) == pytest.approx(WEIGHTS, abs=0.01)
    assert left_out(known) == pytest.approx([run.measured for run in known], rel=0.02)


def test_few_runs_do_not_make_up_weights() -> None:
    weights = fit(runs(1))
    assert weights["blocks"] == pytest.approx(1, abs=0.2)
    assert weights["mispredictions"] == pytest.approx(1, abs=0.1)
    assert max(weights[name] for name in INPUTS[2:]) < 0.1
    # Of noise alone little is learnt, and less than the noise is lost by it.
    noisy = runs(6, noise=0.3)
    measured = np.array([run.measured for run in noisy])
    assert np.mean(np.abs(left_out(noisy) / measured - 1)) < 0.6


def test_a_program_is_judged_by_weights_of_others() -> None:
    known = runs(8, noise=0.05)
    # A program that takes ten times as long as the others would.
    odd = [Run("odd", run.inputs, 10 * run.measured) for run in known[:2]]
    found = left_out([*known, *odd])
    expected = corrected(odd, fit(known))
    assert found[-2:] == pytest.approx(expected)
    assert found[-1] < 0.2 * odd[1].measured
    assert all(weight >= 0 for weight in fit([*known, *odd]).values())


def test_an_input_that_no_run_has_weighs_nothing() -> None:
    known = [Run(run.program, {**run.inputs, INPUTS[3]: 0.0}, run.measured) for run in runs(6)]
    assert fit(known)[INPUTS[3]] == pytest.approx(0, abs=1e-9)


def test_a_file_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "correction.json"
    written = Correction(evaluator="granite", mcpu="znver3", weights=WEIGHTS, programs=("lua",))
    write_correction(path, written)
    assert read_correction(path) == written
    document = json.loads(path.read_text())
    for damage, error, message in (
        ({"version": 2}, JsonError, "version"),
        ({"weights": {**WEIGHTS, INPUTS[1]: -1.0}}, JsonError, "weights"),
        ({"weights": {INPUTS[0]: 1.0}}, CostError, "expected those of blocks, mispredictions"),
    ):
        path.write_text(json.dumps(document | damage))
        with pytest.raises(error, match=message):
            read_correction(path)
    with pytest.raises(CostError, match="cannot be read"):
        read_correction(tmp_path / "none.json")
