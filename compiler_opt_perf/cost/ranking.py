# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How well a predicted cost ranks variants of a program that were measured (docs/cost.md).

Times are in logarithms, so that differences are ratios. A pair of variants is resolved when the
interval of its difference excludes zero: only then does measuring tell which is faster.

A variant's time is made of the fastest parts of its runs. What else a machine does only makes them
slower, and where others use the other hardware thread of a core, most of the time. Intervals come
from random halves of the rounds: drawing with replacement, the bootstrap, says nothing of minima
(Politis, Romano: Large sample confidence regions based on subsamples, 1994). Half the rounds know
less than all, so the intervals are too wide rather than too narrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_LEVEL = 0.95
_REPLICATES = 1000
_SEED = 1


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval around it that holds 95% of what other rounds would give."""

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

    def __init__(self, seconds: Any):
        """Takes processor seconds [R, V, S]: R rounds, in each of which each variant ran once, in
        S parts of the run (timing.Stopwatch).

        A variant's time is the sum over the parts of the least of the rounds.

        Raises:
          ValueError: fewer than 4 rounds or 2 variants, or a time below zero.
        """
        times = np.asarray(seconds, np.float64)
        if times.ndim != 3 or times.shape[0] < 4 or times.shape[1] < 2:
            raise ValueError(
                f"times of shape {times.shape}; expected [rounds >= 4, variants >= 2, parts]"
            )
        if not (times >= 0).all() or not times.sum(axis=2).all():
            raise ValueError("a time that is not above zero")
        rounds, variants, _ = times.shape
        random = np.random.default_rng(_SEED)
        halves = [random.permutation(rounds)[: rounds // 2] for _ in range(_REPLICATES)]
        # [replicates, V]
        self.replicates = np.stack([_log_time(times[half]) for half in halves])
        self.log_time = _log_time(times)
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

    def tau(self, predicted: Sequence[float] | Floats) -> Estimate:
        """Kendall's tau-b between predicted costs and measured times, over all pairs.

        The interval is for other rounds and for other variants of the same kind.
        """
        costs = _signs(np.asarray(predicted, np.float64))
        value = _tau_b(costs, _signs(self.log_time), np.ones(len(self.log_time)))
        replicates = [
            _tau_b(costs, _signs(times), weights)
            for times, weights in zip(self.replicates, self.weights, strict=True)
        ]
        return Estimate.of(value, np.array(replicates))

    def resolved_tau(self, predicted: Sequence[float] | Floats) -> Estimate:
        """Share of resolved pairs in the right order, less that in the wrong one.

        A pair with equal predictions is neither. NaN when no pair is resolved.
        """
        return Estimate.of(*self._resolved_tau(predicted))

    def lead(
        self, predicted: Sequence[float] | Floats, other: Sequence[float] | Floats
    ) -> Estimate:
        """By how much the first's resolved_tau is above the other's, on the same draws."""
        (first, firsts), (second, seconds) = map(self._resolved_tau, (predicted, other))
        return Estimate.of(first - second, firsts - seconds)

    def resolved_pairs(self) -> int:
        """How many pairs are resolved."""
        return int(np.triu(self.resolved, 1).sum())

    def _resolved_tau(self, predicted: Any) -> tuple[float, Floats]:
        costs = _signs(np.asarray(predicted, np.float64))

        def tau(times: Floats, weights: Floats) -> float:
            pairs = np.outer(weights, weights) * self.resolved
            total = pairs.sum()
            return float((pairs * costs * _signs(times)).sum() / total) if total else float("nan")

        replicates = [tau(*both) for both in zip(self.replicates, self.weights, strict=True)]
        return tau(self.log_time, np.ones(len(self.log_time))), np.array(replicates)


def _signs(values: Floats) -> Floats:
    """[V, V]: the sign of each difference."""
    return np.sign(values[:, None] - values[None, :])


def _tau_b(left: Floats, right: Floats, weights: Floats) -> float:
    """Kendall's tau-b of two sign matrices (Kendall 1945); 0 when one is all ties."""
    pairs = np.outer(weights, weights)
    norm = float((pairs * left * left).sum() * (pairs * right * right).sum()) ** 0.5
    return float((pairs * left * right).sum()) / norm if norm else 0.0


def _log_time(times: Floats) -> Floats:
    """[R, V, S] to [V], relative to the mean of all variants."""
    logarithms = np.log(times.min(axis=0).sum(axis=1))
    return np.asarray(logarithms - logarithms.mean(), np.float64)
