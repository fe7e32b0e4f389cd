# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.binary.symbolize import Line
from compiler_opt_perf.profile.changes import Change, changed_rates, discoveries, p_values
from compiler_opt_perf.profile.events import EVENTS, RATES
from compiler_opt_perf.profile.manifest import Collector, EventFile, Manifest, ProfiledBinary
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.sample_profile import FunctionSamples, SampleProfile

# Those whose numerator has a cost.
PAIRS = (
    ("llc-load-misses", "loads"),
    ("conditional-branch-mispredicts", "conditional-branches"),
    ("indirect-branch-mispredicts", "indirect-branches"),
    ("icache-misses", "instructions"),
)
FUNCTIONS = 5000
Array = npt.NDArray[Any]


def _profile(true_rates: Array, trials: Array, sampled: bool, seed: int) -> Profile:
    """A profile of functions with those true rates [functions, 4] and trials [functions, 4]."""
    random = np.random.default_rng(seed)
    names = {name for pair in PAIRS for name in pair}
    events = [event for event in EVENTS if event.name in names]
    period = {e.name: (1 if not sampled else 20 if e.penalty_cycles else 500) for e in events}
    counts = {}
    for column, (numerator, denominator) in enumerate(PAIRS):
        if sampled:
            missed = random.poisson(true_rates[:, column] * trials[:, column] / period[numerator])
            tried = random.poisson(trials[:, column] / period[denominator])
            counts[numerator] = missed * period[numerator]
            counts[denominator] = tried * period[denominator]
        else:
            counts[denominator] = trials[:, column]
            counts[numerator] = random.binomial(trials[:, column], true_rates[:, column])
    samples = SampleProfile(events)
    for number in range(len(trials)):
        samples.functions[f"f{number}"] = function = FunctionSamples()
        function.lines[Line(1, 0)] = [int(counts[event.name][number]) for event in events]
    samples.located = [int(counts[event.name].sum()) for event in events]
    files = tuple(
        EventFile(e.name, e.unit, period[e.name], e.kind, True, located, located)
        for e, located in zip(events, samples.located, strict=True)
    )
    rates = tuple(
        row.with_prior(1e-6) for row in RATES if {row.numerator, row.denominator} <= names
    )
    collector = Collector("perf", "test", (), (), {})
    return Profile(Manifest(Path("a"), ProfiledBinary("p", ""), collector, files, rates), samples)


def _truth(seed: int) -> tuple[Array, Array]:
    """True rates and trials, [functions, 4]: most functions run little, a few very much."""
    random = np.random.default_rng(seed)
    rates = 10 ** random.uniform(-4, -0.2, (FUNCTIONS, len(PAIRS)))
    return rates, np.round(10 ** random.uniform(0, 8, rates.shape)).astype(np.int64)


@pytest.mark.parametrize("sampled", [False, True])
def test_two_profiles_of_the_same_differ_nowhere(sampled: bool) -> None:
    found = []
    for seed in range(3):
        rates, trials = _truth(seed)
        first, second = (_profile(rates, trials, sampled, 10 * seed + n) for n in (1, 2))
        found += changed_rates(first, second)
    # Three times 20,000 comparisons; a chance of 1 in 20 each time to find any.
    assert len(found) <= 1


@pytest.mark.parametrize("sampled", [False, True])
def test_true_differences_are_found_among_many(sampled: bool) -> None:
    rates, trials = _truth(4)
    other = rates.copy()
    other[:100] *= 1.25
    trials[:100] = 300_000_000
    changes = changed_rates(
        _profile(rates, trials, sampled, 41), _profile(np.minimum(other, 1), trials, sampled, 42)
    )
    true = {(f"f{number}", pair[0]) for number in range(100) for pair in PAIRS}
    told = {(change.function, change.rate.numerator) for change in changes}
    assert len(told & true) > 0.9 * len(true)
    assert len(told - true) < 0.1 * len(told)
    assert all(change.weight > 0 for change in changes if (_key(change)) in true)
    weights = [abs(change.weight) for change in changes]
    assert weights == sorted(weights, reverse=True)


def _key(change: Change) -> tuple[str, str]:
    return change.function, change.rate.numerator


def test_p_values_are_those_of_the_binomial_distribution() -> None:
    # R: 2 * pbinom(2, 12, 0.5), 2 * pbinom(0, 10, 0.25), and of no difference at all.
    rows = np.array([(2, 1e6, 10, 1e6), (0, 1e6, 10, 3e6), (5, 1e6, 5, 1e6)], np.float64)
    expected = [2 * 79 / 4096, 2 * 0.75**10, 1.0]
    assert p_values(*rows.T) == pytest.approx(expected)
    # The other way round, and of what did not occur.
    assert p_values(*rows[:, [2, 3, 0, 1]].T) == pytest.approx(expected)
    rest = rows.copy()
    rest[:, [0, 2]] = rows[:, [1, 3]] - rows[:, [0, 2]]
    assert p_values(*rest.T) == pytest.approx(expected)
    # Means, such as latencies, may be above 1.
    assert p_values(*np.array([[9e4, 1e3, 5e4, 1e3], [9e4, 1e3, 9e4, 1e3]]).T)[0] < 1e-100


def test_p_values_are_right_where_nothing_differs() -> None:
    random = np.random.default_rng(1)
    trials = 10.0 ** random.uniform(1, 9, (2, 200_000))
    rates = 10 ** random.uniform(-6, -1, 200_000)
    values = p_values(*np.stack([random.poisson(rates * trials), trials], 1).reshape(4, -1))
    for level in (0.1, 0.01, 0.001):
        assert (values <= level).mean() <= level * 1.1


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    # The example of their paper (1995), section 3.1: 4 of 15 at a level of 5%.
    few = (0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240)
    values = np.array([*few, 0.4262, 0.5719, 0.6528, 0.7590, 1.0])
    assert discoveries(values).tolist() == [True] * 4 + [False] * 11
    assert discoveries(values[::-1]).tolist() == [False] * 11 + [True] * 4
    assert discoveries(np.zeros(0)).tolist() == []
