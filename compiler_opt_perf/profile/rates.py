# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rates of two events, with their uncertainty."""

import math
from dataclasses import dataclass

# Of the normal distribution: 95% of it lies within this many standard deviations.
_Z = 1.959964


@dataclass(frozen=True)
class RateEstimate:
    """A rate at one place, as the counts there and around it tell it.

    Attributes:
      numerator, denominator: counts at the place.
      shrunk: the rate, drawn towards that of the surroundings; None when neither the place nor its
        surroundings have a count of the denominator.
      low, high: 95% confidence interval of the place's own rate (0 to 1 when it has no count).
    """

    numerator: int
    denominator: int
    shrunk: float | None
    low: float
    high: float

    @property
    def raw(self) -> float | None:
        """Numerator by denominator; None without a denominator."""
        return self.numerator / self.denominator if self.denominator else None


def wilson(successes: float, trials: float) -> tuple[float, float]:
    """The 95% confidence interval of a probability, of which `successes` of `trials` are known.

    Wilson's score interval: unlike the textbook's it stays within 0 and 1, and is right for few
    trials and for rates near 0 or 1 (E. B. Wilson, Probable inference, the law of succession, and
    statistical inference, JASA 22, 1927). Trials need not be whole numbers.
    """
    if trials <= 0:
        return 0.0, 1.0
    share = min(successes / trials, 1.0)
    z2 = _Z * _Z
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    # At the ends the interval reaches 0 and 1 exactly; rounding must not take that away.
    low = 0.0 if successes <= 0 else max(0.0, centre - half)
    return low, 1.0 if share == 1 else min(1.0, centre + half)


def trial_size(rate: float, numerator_period: int, denominator_period: int) -> float:
    """How many counts of the denominator tell as much about a rate as one observed trial.

    When each event was counted (periods of 1) the counts are the trials. When events were sampled,
    n and d counts are n / P_n and d / P_d independent samples; the relative variance of their ratio
    is P_n / n + P_d / d, which is that of d / (P_n + rate * P_d) trials for small rates.
    """
    return numerator_period + rate * (denominator_period - 1)


def shrink(
    numerator: int, denominator: int, towards: float | None, strength: float
) -> float | None:
    """(n + a·p) / (d + a): the rate of few counts is nearly `towards`, that of many their own.

    Args:
      towards: p, the rate of the surroundings; None when it is unknown.
      strength: a, in counts of the denominator.
    """
    if towards is None:
        return numerator / denominator if denominator else None
    if denominator + strength == 0:
        return towards
    return (numerator + strength * towards) / (denominator + strength)
