# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import itertools

import numpy as np
import pytest

from benchmarks.ranking import Measured
from compiler_opt_perf.compare.summary import Floats

LAYOUTS = [0, 1, 2, 3, 4] * 12


def _rounds(levels: list[float], noise: float, rounds: int = 60) -> Floats:
    """Times of variants that take `levels`; in each of 5 parts most runs take longer."""
    random = np.random.default_rng(7)
    shape = (rounds, len(levels), 5)
    disturbed = 1 + (random.random(shape) < 0.6) * random.uniform(0.2, 0.5, shape)
    parts = np.asarray(levels)[:, None] * np.array([1, 2, 3, 2, 1])
    times: Floats = parts * disturbed * np.exp(noise * random.standard_normal(shape))
    return times


def _measured(levels: list[float], noise: float) -> Measured:
    return Measured(_rounds(levels, noise), LAYOUTS)


def test_resolves_what_noise_does_not_hide() -> None:
    # The first two differ by 0.1%, the others by far more than the noise.
    measured = _measured([1.0, 1.001, 1.1, 1.2], noise=0.01)
    resolved = {(i, j) for i, j in itertools.combinations(range(4), 2) if measured.resolved[i, j]}
    assert resolved == {(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert measured.resolved_pairs() == 5
    ratios = np.exp(measured.log_time - measured.log_time[0])
    assert ratios == pytest.approx([1, 1, 1.1, 1.2], rel=0.01)
    assert (measured.low <= measured.log_time).all() and (measured.log_time <= measured.high).all()


def test_an_outlier_does_not_move_a_variant() -> None:
    times = _rounds([1.0, 1.1, 1.2], noise=0.005)
    times[3, 0] *= 10
    measured = Measured(times, LAYOUTS)
    assert np.exp(np.diff(measured.log_time)) == pytest.approx([1.1, 1.2 / 1.1], rel=0.01)


def _in_layouts(effects: Floats, rounds: int, noise: float, seed: int) -> tuple[Floats, list[int]]:
    """Times [rounds, V, S] of programs whose parts take exp(effects) seconds, [layouts, V, S]."""
    random = np.random.default_rng(seed)
    layouts = [number % len(effects) for number in range(rounds)]
    shape = (rounds, *effects.shape[1:])
    disturbed = 1 + (random.random(shape) < 0.5) * random.uniform(0.2, 0.5, shape)
    return np.exp(effects[layouts] + noise * random.random(shape)) * disturbed, layouts


def test_a_variant_that_varies_with_its_layout_is_no_faster_for_it() -> None:
    """The fastest parts of all layouts together would rank the first variant far ahead."""
    random = np.random.default_rng(5)
    effects = random.normal(0, 0.05, (10, 2, 40))
    effects -= effects.mean(axis=0)
    effects[:, 1] = np.log(0.98)
    times, layouts = _in_layouts(effects, 100, 0.002, 6)
    fastest = np.log(times.min(axis=0).sum(axis=1))
    assert fastest[0] < fastest[1] - 0.04
    measured = Measured(times, layouts)
    assert measured.log_time[0] - measured.log_time[1] == pytest.approx(0.02, abs=0.01)
    assert measured.resolved_pairs() == 1


def test_differences_between_layouts_alone_are_not_resolved() -> None:
    resolved = pairs = 0
    for seed in range(4):
        # Variants that are alike, but for where they happen to lie.
        layout = np.random.default_rng(seed).normal(0, 0.01, (10, 20, 1))
        effects = layout * np.ones((1, 1, 30))
        resolved += Measured(*_in_layouts(effects, 60, 0.001, seed)).resolved_pairs()
        pairs += 20 * 19 // 2
    assert resolved <= 0.1 * pairs


def test_tau_counts_pairs() -> None:
    measured = _measured([1.0, 1.1, 1.2, 1.3], noise=0.001)
    tau, swapped = measured.resolved_tau, [1, 2, 4, 3]
    # 6 pairs; the interval is over draws of other variants, too.
    assert tau([1, 2, 3, 4]).value == 1 and tau([4, 3, 2, 1]).value == -1
    assert tau([5, 5, 5, 5]).value == 0 and tau([1, 2, 3, 4]).low == 1
    assert tau(swapped).value == pytest.approx(4 / 6)
    assert tau(swapped).low < 4 / 6 < tau(swapped).high <= 1
    assert tau([1, 2, 3, 3]).value == pytest.approx(5 / 6)


def test_the_same_rounds_give_the_same_intervals() -> None:
    levels = [1.0, 1.01, 1.02]
    first, second = (_measured(levels, noise=0.01).resolved_tau([1, 3, 2]) for _ in range(2))
    assert first == second


def test_without_resolved_pairs_there_is_no_tau() -> None:
    measured = Measured(np.ones((5, 3, 1)), [0, 1, 2, 0, 1])
    assert measured.resolved_pairs() == 0
    assert np.isnan(measured.resolved_tau([1, 2, 3]).value)
    assert np.isnan(measured.resolved_tau([1, 2, 3]).low)


def test_what_is_no_measurement_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 1, 1\)"):
        Measured(np.ones((3, 1, 1)), [0, 1, 2])
    with pytest.raises(ValueError, match="rounds of 2 layouts"):
        Measured(np.ones((4, 2, 1)), [0, 0, 1, 1])
    with pytest.raises(ValueError, match="above zero"):
        Measured(np.zeros((5, 2, 1)), [0] * 5)
    with pytest.raises(ValueError, match="4 layouts of 5 rounds"):
        Measured(np.ones((5, 2, 1)), [0] * 4)
