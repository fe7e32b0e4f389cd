# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Estimates from timed runs of variants of a program, and how predicted costs rank the variants.

Times are logarithms, so differences are ratios. A pair of variants is resolved when the 95%
interval of its difference excludes zero: only then does the measurement tell which is faster.

Each variant is linked in several layouts, because the place of its code makes it faster or slower.
The time in one layout is the sum of the fastest parts of its runs: other work on the machine only
makes parts slower. The time of the variant is the mean over layouts, because layouts have effects
of both signs.

Intervals hold for other layouts. Layouts are drawn with replacement (the bootstrap; Efron:
Bootstrap methods, 1979), each with all its rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_opt_perf.compare.summary import Floats, widening

_LEVEL = 0.95
_REPLICATES = 1000
_SEED = 1


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval around it that holds 95% of what other layouts would give."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, replicates: Floats) -> "Estimate":
        """That of a value and its replicates, of which NaN do not count."""
        known = replicates[~np.isnan(replicates)]
        if not len(known):
            return cls(value, float("nan"), float("nan"))
        tail = (1 - _LEVEL) / 2
        low, high = np.quantile(known, (tail, 1 - tail))
        return cls(value, float(low), float(high))


class Measured:
    """Measured times of V variants, with what is known of their order.

    Attributes:
      log_time: [V] logarithm of each variant's time relative to the mean of all.
      low, high: [V] the interval of it.
      resolved: [V, V] bool, symmetric: the sign of the difference is known.
    """

    def __init__(self, seconds: Any, layouts: Sequence[int]):
        """Takes processor seconds [R, V, S]: R rounds, in each of which each variant ran once, in
        S parts of the run (timing.Stopwatch).

        Args:
          seconds: as said.
          layouts: [R], the layout that was run in each round.

        Raises:
          ValueError: fewer than 3 layouts or 2 variants, a time below zero, or other numbers of
            rounds and layouts.
        """
        times = np.asarray(seconds, np.float64)
        if times.ndim != 3 or times.shape[1] < 2:
            raise ValueError(
                f"times of shape {times.shape}; expected [rounds, variants >= 2, parts]"
            )
        if not (times >= 0).all() or not times.sum(axis=2).all():
            raise ValueError("a time that is not above zero")
        if len(layouts) != len(times):
            raise ValueError(f"{len(layouts)} layouts of {len(times)} rounds; expected one of each")
        if len(set(layouts)) < 3:
            raise ValueError(f"rounds of {len(set(layouts))} layouts; expected 3 or more")
        variants = times.shape[1]
        random = np.random.default_rng(_SEED)
        # [layouts, V]
        log_times = np.stack(
            [_log_time(times[np.equal(layouts, layout)]) for layout in sorted(set(layouts))]
        )
        number = len(log_times)
        self.log_time = log_times.mean(axis=0)
        drawn = log_times[random.integers(number, size=(_REPLICATES, number))].mean(axis=1)
        # [replicates, V]
        self.replicates = self.log_time + widening(number) * (drawn - self.log_time)
        tail = (1 - _LEVEL) / 2
        low, high = np.quantile(self.replicates, (tail, 1 - tail), axis=0)
        self.low, self.high = np.minimum(low, self.log_time), np.maximum(high, self.log_time)
        differences = self.replicates[:, :, None] - self.replicates[:, None, :]
        low, high = np.quantile(differences, (tail, 1 - tail), axis=0)
        self.resolved = (low > 0) | (high < 0)
        # How often each variant is drawn, for the intervals of ranks: [replicates, V].
        self.weights = random.multinomial(
            variants, np.full(variants, 1 / variants), size=_REPLICATES
        ).astype(np.float64)

    def resolved_tau(self, predicted: Sequence[float] | Floats) -> Estimate:
        """Kendall's tau: share of resolved pairs in the right order, less that in the wrong one.

        A pair with equal predictions is neither. NaN when no pair is resolved. The interval is for
        other layouts, and for other variants of the same kind.
        """
        costs = _signs(np.asarray(predicted, np.float64))

        def tau(times: Floats, weights: Floats) -> float:
            pairs = np.outer(weights, weights) * self.resolved
            total = pairs.sum()
            return float((pairs * costs * _signs(times)).sum() / total) if total else float("nan")

        replicates = [tau(*both) for both in zip(self.replicates, self.weights, strict=True)]
        value = tau(self.log_time, np.ones(len(self.log_time)))
        return Estimate.of(value, np.array(replicates))

    def resolved_pairs(self) -> int:
        """How many pairs are resolved."""
        return int(np.triu(self.resolved, 1).sum())


def _signs(values: Floats) -> Floats:
    """[V, V]: the sign of each difference."""
    return np.sign(values[:, None] - values[None, :])


def _log_time(times: Floats) -> Floats:
    """Times of one layout, [rounds, V, S], to [V], relative to the mean of all variants."""
    logarithms = np.log(times.min(axis=0).sum(axis=1))
    return np.asarray(logarithms - logarithms.mean(), np.float64)
