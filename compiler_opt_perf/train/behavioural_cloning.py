# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Behavioural cloning: a network that imitates the compiler's own decisions.

Cross-entropy between the network's scores and the logged decisions (training.gradient_descent).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.network import FloatArray, IntArray, Network, to_grid
from compiler_opt_perf.train.gradient_descent import descend


@dataclass(frozen=True)
class Settings:
    """How to imitate.

    Attributes:
      steps: gradient steps.
      batch_size: rows a step.
      learning_rate: Adam's, decaying to a tenth (cosine).
      label_smoothing: share of the probability that is spread over all admissible decisions.
        Without it the scores lie far apart, and small changes of the weights change no decision.
      seed: of initial weights and of the batches.
    """

    steps: int
    batch_size: int
    learning_rate: float
    label_smoothing: float
    seed: int


@dataclass(frozen=True)
class Accuracy:
    """Share of decisions that equal the compiler's.

    Attributes:
      rows: number of rows.
      overall: of all rows.
      idle: of rows where the compiler does nothing (no inlining, no eviction).
      active: of the other rows.
    """

    rows: int
    overall: float
    idle: float
    active: float

    def as_json(self) -> dict[str, float]:
        """For reports."""
        return asdict(self)


def class_weights(decisions: IntArray, idle_decision: int) -> FloatArray:
    """The rows' weights, mean 1, float32 [rows]: idle and other decisions weigh the same in sum."""
    idle = decisions == idle_decision
    share = np.clip(idle.mean(), 0.05, 0.95)
    weights = np.where(idle, 0.5 / share, 0.5 / (1 - share))
    return np.asarray(weights / weights.mean(), dtype=np.float32)


def train(
    network: Network,
    inputs: Mapping[str, npt.NDArray[Any]],
    decisions: IntArray,
    settings: Settings,
) -> FloatArray:
    """Fits weights to logged decisions.

    Args:
      inputs: as in Network.encode, [rows] or [rows, columns] each.
      decisions: int64 [rows], the compiler's own.

    Returns:
      The weights, float32 [network.size], not yet on the grid.
    """
    problem = network.problem
    closed = np.zeros((len(decisions), problem.decisions), bool)
    if problem.mask is not None:
        closed |= inputs[problem.mask] == 0
    labels = (1 - settings.label_smoothing) * np.eye(problem.decisions)[decisions]
    labels += settings.label_smoothing * ~closed / (~closed).sum(axis=1, keepdims=True)
    return descend(
        network,
        inputs,
        labels,
        steps=settings.steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
        row_weights=class_weights(decisions, problem.idle_decision),
    )


def accuracy(
    network: Network,
    weights: FloatArray,
    inputs: Mapping[str, npt.NDArray[Any]],
    decisions: IntArray,
) -> Accuracy:
    """How often the network decides as the compiler did; arguments as for `train`."""
    equal = network.decide(to_grid(weights), inputs) == decisions
    idle = decisions == network.problem.idle_decision

    def share(rows: npt.NDArray[np.bool_]) -> float:
        return float(equal[rows].mean()) if rows.any() else 1.0

    return Accuracy(len(equal), share(np.ones_like(idle)), share(idle), share(~idle))
