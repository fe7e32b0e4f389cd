# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import random

import pytest

from compiler_opt_perf.profile.rates import RateEstimate, shrink, trial_size, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # R: prop.test(x, n, correct = FALSE)$conf.int
        (0, 10, 0.0, 0.2775328),
        (1, 10, 0.01787621, 0.4041500),
        (5, 10, 0.2365931, 0.7634069),
        (10, 10, 0.7224672, 1.0),
        (15, 148, 0.0624104, 0.1605790),
    ],
)
def test_wilson_against_published_values(
    successes: int, trials: int, low: float, high: float
) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=2e-4)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilson_holds_the_truth_19_times_of_20() -> None:
    generator = random.Random(3)
    for rate in (0.01, 0.1, 0.5):
        held = 0
        for _ in range(2000):
            low, high = wilson(sum(generator.random() < rate for _ in range(200)), 200)
            held += low <= rate <= high
        assert 0.92 <= held / 2000 <= 0.98


def test_sampled_counts_weigh_as_little_as_their_samples() -> None:
    # 40 samples of 100 misses each, among 1000 samples of 1000 loads each.
    generator = random.Random(5)
    true_rate, loads, per_miss, per_load = 0.004, 1_000_000, 100, 1000
    trials = loads / trial_size(true_rate, per_miss, per_load)
    low, high = wilson(true_rate * trials, trials)
    held = 0
    for _ in range(400):
        # Numbers of samples: Poisson's distribution, which is nearly the normal one here.
        misses = round(
            generator.gauss(true_rate * loads / per_miss, (true_rate * loads / per_miss) ** 0.5)
        )
        sampled = round(generator.gauss(loads / per_load, (loads / per_load) ** 0.5))
        held += low <= misses * per_miss / (sampled * per_load) <= high
    assert 0.9 <= held / 400 <= 0.99


def test_counts_themselves_are_trials() -> None:
    assert trial_size(0.3, 1, 1) == 1


def test_shrinking() -> None:
    assert shrink(0, 0, 0.25, 16) == 0.25
    assert shrink(16, 16, 0.0, 16) == 0.5
    assert shrink(9_000, 10_000, 0.1, 16) == pytest.approx(0.8987, abs=1e-4)
    assert shrink(1, 4, None, 16) == 0.25
    assert shrink(0, 0, None, 16) is None
    assert shrink(0, 0, 0.5, 0) == 0.5


def test_a_rate_without_denominator_is_none() -> None:
    few = RateEstimate(1, 4, None, *wilson(1, 4))
    assert (few.raw, RateEstimate(0, 0, None, 0, 1).raw) == (0.25, None)
