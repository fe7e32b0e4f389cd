# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Warm start: a network that imitates the compiler's own decisions.

Cross-entropy between the network's scores and the logged decisions, minimised by Adam. The forward
pass is the one that runs in the compiler, rounded to its grid by additions, which gradients pass
unchanged (straight-through estimator, Bengio et al. 2013): what was trained is what is used.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policies.export import import_tensorflow, tensorflow_ops
from compiler_opt_perf.policies.network import (
    MASKED_SCORE,
    WEIGHT_LIMIT,
    FloatArray,
    IntArray,
    Network,
    to_grid,
)
from compiler_opt_perf.training.adam import Adam


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
      The weights, float32 [network.size], on the grid.
    """
    tf = import_tensorflow()
    # The same seed gives the same weights, whatever the number of threads.
    tf.config.experimental.enable_op_determinism()
    ops = tensorflow_ops()
    random = np.random.default_rng(settings.seed)

    encoded = network.encode(inputs)
    problem = network.problem
    closed = np.zeros((len(decisions), problem.decisions), bool)
    if problem.mask is not None:
        closed |= inputs[problem.mask] == 0
    labels = (1 - settings.label_smoothing) * np.eye(problem.decisions)[decisions]
    labels += settings.label_smoothing * ~closed / (~closed).sum(axis=1, keepdims=True)
    labels = labels.astype(np.float32)
    row_weights = class_weights(decisions, problem.idle_decision)

    @tf.function  # type: ignore[untyped-decorator]
    def gradient(vector: Any, x: Any, closed_columns: Any, y: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(vector)
            scores = network.scores(network.layers(vector, ops), x, ops)
            scores = tf.where(closed_columns, MASKED_SCORE, scores)
            losses = tf.nn.softmax_cross_entropy_with_logits(labels=y, logits=scores)
            loss = tf.reduce_mean(losses * w)
        return tape.gradient(loss, vector)

    weights = network.initial_weights(settings.seed).astype(np.float64)
    adam = Adam.start(network.size)
    for number in range(settings.steps):
        batch = random.integers(0, len(decisions), settings.batch_size)
        g = gradient(
            to_grid(weights), encoded[batch], closed[batch], labels[batch], row_weights[batch]
        )
        adam, direction = adam.step(g.numpy().astype(np.float64))
        rate = settings.learning_rate * (0.1 + 0.45 * (1 + np.cos(np.pi * number / settings.steps)))
        weights = np.clip(weights - rate * direction, -WEIGHT_LIMIT, WEIGHT_LIMIT)

    return to_grid(weights)


def accuracy(
    network: Network,
    weights: FloatArray,
    inputs: Mapping[str, npt.NDArray[Any]],
    decisions: IntArray,
) -> Accuracy:
    """How often the network decides as the compiler did; arguments as for `train`."""
    equal = network.decide(weights, inputs) == decisions
    idle = decisions == network.problem.idle_decision

    def share(rows: npt.NDArray[np.bool_]) -> float:
        return float(equal[rows].mean()) if rows.any() else 1.0

    return Accuracy(len(equal), share(np.ones_like(idle)), share(idle), share(~idle))
