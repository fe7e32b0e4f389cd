# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import itertools

import numpy as np
import pytest

from compiler_opt_perf.cost.ranking import Floats, Measured


def _rounds(levels: list[float], noise: float, rounds: int = 24) -> Floats:
    """Times of variants that take `levels`; in each of 5 parts most runs take longer."""
    random = np.random.default_rng(7)
    shape = (rounds, len(levels), 5)
    disturbed = 1 + (random.random(shape) < 0.6) * random.uniform(0.2, 0.5, shape)
    parts = np.asarray(levels)[:, None] * np.array([1, 2, 3, 2, 1])
    times: Floats = parts * disturbed * np.exp(noise * random.standard_normal(shape))
    return times


def _measured(levels: list[float], noise: float) -> Measured:
    return Measured(_rounds(levels, noise))


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
    measured = Measured(times)
    assert np.exp(np.diff(measured.log_time)) == pytest.approx([1.1, 1.2 / 1.1], rel=0.01)


def test_tau_counts_pairs() -> None:
    measured = _measured([1.0, 1.1, 1.2, 1.3], noise=0.001)
    right, swapped, reverse, equal = [1, 2, 3, 4], [1, 2, 4, 3], [4, 3, 2, 1], [5, 5, 5, 5]
    # 6 pairs; the interval is over draws of other variants, too.
    for tau in (measured.tau, measured.resolved_tau):
        assert tau(right).value == 1 and tau(reverse).value == -1 and tau(equal).value == 0
        assert tau(swapped).value == pytest.approx(4 / 6)
        assert tau(swapped).low < 4 / 6 < tau(swapped).high <= 1
        assert tau(right).low == 1
    # Kendall's tau-b (1945) corrects for ties, 5 / sqrt(6 * 5); resolved_tau does not.
    assert measured.tau([1, 2, 3, 3]).value == pytest.approx(5 / 30**0.5)
    assert measured.resolved_tau([1, 2, 3, 3]).value == pytest.approx(5 / 6)
    lead = measured.lead(right, swapped)
    assert lead.value == pytest.approx(2 / 6) and lead.low == pytest.approx(0)
    assert measured.lead(swapped, right).value == -lead.value
    assert measured.lead(right, right).high == 0


def test_the_same_rounds_give_the_same_intervals() -> None:
    first, second = (_measured([1.0, 1.01, 1.02], noise=0.01).tau([1, 3, 2]) for _ in range(2))
    assert first == second


def test_without_resolved_pairs_there_is_no_tau() -> None:
    measured = Measured(np.ones((5, 3, 1)))
    assert measured.resolved_pairs() == 0
    assert np.isnan(measured.resolved_tau([1, 2, 3]).value)
    assert np.isnan(measured.resolved_tau([1, 2, 3]).low)


def test_what_is_no_measurement_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 2, 1\)"):
        Measured(np.ones((3, 2, 1)))
    with pytest.raises(ValueError, match="above zero"):
        Measured(np.zeros((5, 2, 1)))
