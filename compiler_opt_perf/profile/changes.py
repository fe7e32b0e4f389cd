# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds functions whose rates differ significantly between two PMU profiles."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from compiler_opt_perf.profile.events import Rate
from compiler_opt_perf.profile.hotspots import shown_rates
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.rates import RateEstimate, trial_size

# The false discovery rate: the expected share of reported differences that are chance.
FALSE_DISCOVERIES = 0.05

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """A function's rate that differs significantly between two profiles.

    Attributes:
      function: linkage name.
      rate: the rate's definition in the later profile.
      before, after: the rate in each profile.
      weight: the difference times the later denominator: additional misses or mispredicts.
    """

    function: str
    rate: Rate
    before: RateEstimate
    after: RateEstimate
    weight: float


def changed_rates(before: Profile, after: Profile) -> list[Change]:
    """Functions of both profiles whose rates differ significantly, largest weight first.

    The rates are `shown_rates(after)`. Thousands of rates are compared at once, so `discoveries`
    limits the false discovery rate.
    """
    earlier_rates = {rate.name: rate for rate in before.manifest.rates}
    functions = before.functions.keys() & after.functions.keys()
    compared = []
    for rate in shown_rates(after):
        earlier = earlier_rates.get(rate.name)
        if earlier is None:
            continue
        for name in sorted(functions):
            old, new = before.of_function(earlier, name), after.of_function(rate, name)
            # Without an occurrence in either profile there is no difference to test.
            if old.denominator and new.denominator and old.numerator + new.numerator:
                compared.append((rate, name, old, new))
    observed = [
        (*_observed(before, earlier_rates[rate.name], old), *_observed(after, rate, new))
        for rate, _, old, new in compared
    ]
    found = discoveries(p_values(*np.array(observed, np.float64).reshape(-1, 4).T))
    changes = []
    for index in np.flatnonzero(found):
        rate, name, old, new = compared[index]
        weight = ((new.raw or 0.0) - (old.raw or 0.0)) * new.denominator
        changes.append(Change(name, rate, old, new, weight))
    return sorted(changes, key=lambda change: (-abs(change.weight), change.function))


def _observed(profile: Profile, rate: Rate, estimate: RateEstimate) -> tuple[float, float]:
    """Numbers of independently observed occurrences and trials behind a sampled rate."""
    counts_per_trial = trial_size(
        estimate.raw or 0.0,
        profile.manifest.event(rate.numerator).period,
        profile.manifest.event(rate.denominator).period,
    )
    return estimate.numerator / counts_per_trial, estimate.denominator / counts_per_trial


def p_values(
    occurrences: Floats, trials: Floats, other_occurrences: Floats, other_trials: Floats
) -> Floats:
    """Two-sided p-values of the hypothesis that two rates are equal, one per row.

    Let s be the occurrences in n and m trials together. If the rates are equal, the number among
    the n follows a binomial distribution of s and n / (n + m) (Przyborowski and Wilenski,
    Homogeneity of results in testing samples from Poisson series, Biometrika 31, 1940). The test
    is exact for small rates and conservative for larger ones. Rates above 1/2 are compared by
    their complements.

    Args:
      occurrences, trials, other_occurrences, other_trials: [N], may be fractional; trials are
        positive.

    Returns:
      [N]
    """
    total, all_trials = occurrences + other_occurrences, trials + other_trials
    # A rate above 1, such as a mean latency, has no complement.
    inverted = (
        (2 * total > all_trials) & (occurrences <= trials) & (other_occurrences <= other_trials)
    )
    mine = np.where(inverted, trials - occurrences, occurrences)
    total = np.where(inverted, all_trials - total, total)
    share = trials / all_trials
    # Tails of the binomial distribution, each with the observed value.
    above = np.where(mine > 0, betainc(np.maximum(mine, 1e-300), total - mine + 1, share), 1.0)
    rest = total - mine
    below = np.where(rest > 0, betainc(np.maximum(rest, 1e-300), mine + 1, 1 - share), 1.0)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(above, below)), np.float64)


def discoveries(p_values: Floats, level: float = FALSE_DISCOVERIES) -> npt.NDArray[np.bool_]:
    """Selects the significant differences among N that are tested together.

    The expected share of false discoveries is at most `level` (Benjamini and Hochberg, Controlling
    the false discovery rate, JRSS B 57, 1995). Separate 95% tests would find differences between
    any two profiles of many functions.

    Returns:
      [N]
    """
    # scipy.stats takes half a second to load, and only a diff of profiles needs it.
    from scipy.stats import false_discovery_control

    return np.asarray(false_discovery_control(p_values, method="bh") <= level, np.bool_)
