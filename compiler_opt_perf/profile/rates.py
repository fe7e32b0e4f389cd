# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rates of two events, with shrinkage and confidence intervals."""

import math
from dataclasses import dataclass

# 95% of a normal distribution lies within this many standard deviations.
_Z = 1.959964


@dataclass(frozen=True)
class RateEstimate:
    """The estimate of a rate at one location.

    Attributes:
      numerator, denominator: counts at the location.
      shrunk: the rate, shrunk towards the enclosing function's or program's rate. None if neither
        has a count of the denominator.
      low, high: 95% confidence interval of the location's own rate; 0 to 1 without counts.
    """

    numerator: int
    denominator: int
    shrunk: float | None
    low: float
    high: float

    @property
    def raw(self) -> float | None:
        """Numerator / denominator; None if the denominator is zero."""
        return self.numerator / self.denominator if self.denominator else None


def wilson(successes: float, trials: float) -> tuple[float, float]:
    """The 95% confidence interval of a probability, from `successes` in `trials`.

    This is Wilson's score interval (E. B. Wilson, Probable inference, the law of succession, and
    statistical inference, JASA 22, 1927). Unlike the normal approximation, it is valid for few
    trials and for rates near 0 or 1. Successes and trials may be fractional.
    """
    if trials <= 0:
        return 0.0, 1.0
    share = min(successes / trials, 1.0)
    z2 = _Z * _Z
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    # Rates of exactly 0 and 1 have intervals that reach 0 and 1, despite rounding.
    low = 0.0 if successes <= 0 else max(0.0, centre - half)
    return low, 1.0 if share == 1 else min(1.0, centre + half)


def trial_size(rate: float, numerator_period: int, denominator_period: int) -> float:
    """Counts of the denominator per independent trial.

    If each event was counted (periods of 1), each count is a trial. If events were sampled, n and d
    counts are n / P_n and d / P_d independent samples. The relative variance of their ratio is
    P_n / n + P_d / d. For small rates that equals the variance of d / (P_n + rate * P_d) trials.
    """
    return numerator_period + rate * (denominator_period - 1)


def shrink(
    numerator: int, denominator: int, towards: float | None, strength: float
) -> float | None:
    """Shrinks a rate: (n + a·p) / (d + a), so that few counts yield nearly p.

    Args:
      numerator, denominator: n and d.
      towards: p, the rate of the enclosing function or program; None if unknown.
      strength: a, the prior weight, in counts of the denominator.
    """
    if towards is None:
        return numerator / denominator if denominator else None
    if denominator + strength == 0:
        return towards
    return (numerator + strength * towards) / (denominator + strength)
