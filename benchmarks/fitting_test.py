# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of corrections are found again."""

import numpy as np
import pytest

from benchmarks.fitting import FAULTS, PredictedRun, corrected, fit, inputs_of_parts, left_out
from benchmarks.parts import RunParts
from compiler_opt_perf.cost.correction import INPUTS

WEIGHTS = dict(zip(INPUTS, (0.9, 1.1, 0.3, 0.2, 0.5, 2.0, 0.4), strict=True))


def runs(programs: int, noise: float = 0.0) -> list[PredictedRun]:
    """Two of each program, of very different length; blocks make up the most."""
    random = np.random.default_rng(1)
    found = []
    for number in range(2 * programs):
        length = 10.0 ** random.uniform(6, 9)
        shares = dict(zip(INPUTS, random.uniform(0, 0.3, len(INPUTS)), strict=True))
        inputs = {name: length * share for name, share in shares.items()} | {INPUTS[0]: length}
        measured = sum(WEIGHTS[name] * cycles for name, cycles in inputs.items())
        measured *= np.exp(random.normal(0, noise))
        found.append(PredictedRun(f"program {number // 2}", inputs, measured))
    return found


def test_weights_are_found_again() -> None:
    known = runs(15)
    assert fit(known) == pytest.approx({**WEIGHTS, FAULTS: 0.0}, abs=0.01)
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
    odd = [PredictedRun("odd", run.inputs, 10 * run.measured) for run in known[:2]]
    found = left_out([*known, *odd])
    expected = corrected(odd, fit(known))
    assert found[-2:] == pytest.approx(expected)
    assert found[-1] < 0.2 * odd[1].measured
    assert all(weight >= 0 for weight in fit([*known, *odd]).values())


def test_a_page_of_the_systems_is_told_apart() -> None:
    known = []
    for number, run in enumerate(runs(15)):
        pages = run.measured / 1e5 * (number % 4)
        inputs = {**run.inputs, FAULTS: pages}
        known.append(PredictedRun(run.program, inputs, run.measured + 9000 * pages))
    weights = fit(known)
    assert weights[FAULTS] == pytest.approx(9000, rel=0.02)
    assert weights["blocks"] == pytest.approx(WEIGHTS["blocks"], abs=0.02)
    # The system's share is no part of what is predicted without them.
    plain = [PredictedRun(run.program, {**run.inputs, FAULTS: 0.0}, 1.0) for run in known]
    expected = [run.measured for run in runs(15)]
    assert corrected(plain, weights) == pytest.approx(expected, rel=0.05)


def test_a_program_of_many_parts_weighs_as_much_as_another() -> None:
    """Of two programs that contradict each other, what is between them is fitted."""
    inputs = dict.fromkeys(INPUTS, 0.0) | {"blocks": 1e6}
    few = [PredictedRun("few", inputs, 1e6)]
    many = [PredictedRun("many", inputs, 2e6) for _ in range(100)]
    # Least squares of w - 1 and w / 2 - 1 are 1.2, and what is expected draws to 1.
    assert 1 < fit([*few, *many])["blocks"] < 1.21


def test_inputs_of_parts_add_up_to_the_runs() -> None:
    parts = RunParts(
        blocks=[("f", 0), ("f", 1)],
        # call; mov rax, [rdi]; ret
        codes=[bytes.fromhex("e800000000"), bytes.fromhex("488b07c3")],
        l1_misses=np.array([0, 0.5]),
        l3_misses=np.zeros(2),
        executions=np.array([[6.0, 0], [2, 8]]),
        seconds=np.array([1e-3, 2e-3]),
        faults=np.array([3.0, 0]),
        elsewhere=np.array([10.0, 30]),
        mispredicted=np.array([1.0, 3]),
        taken=np.array([4.0, 4]),
    )
    run = dict(zip(INPUTS, (0.0, 80.0, 48.0, 7.0, 8.0, 16.0, 50.0), strict=True))
    found = inputs_of_parts(parts, np.array([2.0, 5.0]), run)
    assert [one["blocks"] for one in found] == [12, 44]
    assert [one["mispredictions"] for one in found] == [20, 60]
    assert [one["first-level misses"] for one in found] == [0, 48]
    # Nothing of the binary misses the last level: what does is elsewhere.
    assert [one["last-level misses"] for one in found] == [0, 0]
    assert [one["calls and returns"] for one in found] == [6, 10]
    assert [one["code elsewhere"] for one in found] == [12.5, 37.5]
    assert [one[FAULTS] for one in found] == [3, 0]


def test_an_input_that_no_run_has_weighs_nothing() -> None:
    known = [
        PredictedRun(run.program, {**run.inputs, INPUTS[3]: 0.0}, run.measured) for run in runs(6)
    ]
    assert fit(known)[INPUTS[3]] == pytest.approx(0, abs=1e-9)
