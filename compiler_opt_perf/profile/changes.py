# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rates of functions that differ between two PMU profiles by more than chance."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from compiler_opt_perf.profile.events import Rate
from compiler_opt_perf.profile.hotspots import shown_rates
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.rates import RateEstimate, trial_size

# The expected share of differences reported that are chance.
FALSE_DISCOVERIES = 0.05

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """A function's rate that differs between two profiles by more than chance.

    Attributes:
      function: linkage name.
      rate: as the later profile has it.
      before, after: the rate in the two profiles.
      weight: the change times the executions of the denominator: how many more (or fewer) misses or
        mispredicts the change made.
    """

    function: str
    rate: Rate
    before: RateEstimate
    after: RateEstimate
    weight: float


def changed_rates(before: Profile, after: Profile) -> list[Change]:
    """Functions of both profiles whose rates differ by more than chance, weightiest first.

    The rates are the shown ones of `after`. Every function's rates are compared, which are
    thousands of comparisons: see `discoveries` for what is done about that.
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
            # Where neither has an occurrence, nothing could differ.
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
    """How many occurrences and trials were observed, of those that the samples stand for."""
    one = trial_size(
        estimate.raw or 0.0,
        profile.manifest.event(rate.numerator).period,
        profile.manifest.event(rate.denominator).period,
    )
    return estimate.numerator / one, estimate.denominator / one


def p_values(
    occurrences: Floats, trials: Floats, other_occurrences: Floats, other_trials: Floats
) -> Floats:
    """How likely rates as different as these are when the true rates are equal; two-sided.

    Of s occurrences in n and m trials together, as many belong to the n as a binomial distribution
    of s and n / (n + m) gives (Przyborowski and Wilenski, Homogeneity of results in testing samples
    from Poisson series, Biometrika 31, 1940). That is exact for small rates, whatever the counts;
    for others, chance is less than it says, so that fewer differences are found. Rates near 1 are
    compared by what did not occur.

    Args:
      occurrences, trials, other_occurrences, other_trials: [N], need not be whole numbers; in each
        row some trials of both.

    Returns:
      [N]
    """
    total, all_trials = occurrences + other_occurrences, trials + other_trials
    # A rate above 1, as a mean latency is, has nothing that did not occur.
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
    """Selects the differences that are more than chance, among N that are tested together.

    At most an expected share `level` of the selected differences is chance (Benjamini and Hochberg,
    Controlling the false discovery rate, JRSS B 57, 1995). Intervals of 95%, each for itself, would
    find some differences in any two profiles of many functions.

    Returns:
      [N]
    """
    # Only a diff of profiles needs scipy.stats, which takes half a second to load.
    from scipy.stats import false_discovery_control

    return np.asarray(false_discovery_control(p_values, method="bh") <= level, np.bool_)
