# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Warm start: a network that imitates the compiler's own decisions.

Cross-entropy between the network's scores and the logged decisions, minimised by Adam. The forward
pass is the one that runs in the compiler, rounded to its grid; gradients pass through the rounding
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
      held_out_share: share of the rows that only accuracy is measured on.
      seed: of initial weights, of the split and of the batches.
    """

    steps: int
    batch_size: int
    learning_rate: float
    held_out_share: float
    seed: int


@dataclass(frozen=True)
class Accuracy:
    """Share of decisions that equal the compiler's, on rows that were not trained on.

    Attributes:
      rows: how many rows that is.
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
    """A weight a row, mean 1, float32 [rows]: idle and other decisions weigh the same in total."""
    idle = decisions == idle_decision
    share = np.clip(idle.mean(), 0.05, 0.95)
    weights = np.where(idle, 0.5 / share, 0.5 / (1 - share))
    return np.asarray(weights / weights.mean(), dtype=np.float32)


def train(
    network: Network,
    inputs: Mapping[str, npt.NDArray[Any]],
    decisions: IntArray,
    settings: Settings,
) -> tuple[FloatArray, Accuracy]:
    """Fits weights to logged decisions.

    Args:
      inputs: as in Network.encode, [rows] or [rows, columns] each.
      decisions: int64 [rows], the compiler's own.

    Returns:
      The weights, float32 [network.size] on the grid, and their held-out accuracy.
    """
    tf = import_tensorflow()
    # The same seed gives the same weights, whatever the number of threads.
    tf.config.experimental.enable_op_determinism()
    ops = tensorflow_ops()
    ops.floor = lambda x: x + tf.stop_gradient(tf.floor(x) - x)
    random = np.random.default_rng(settings.seed)

    order = random.permutation(len(decisions))
    held_out = order[: int(len(order) * settings.held_out_share)]
    rows = order[len(held_out) :]
    encoded = network.encode(inputs)
    mask = network.problem.mask
    closed = np.zeros((len(decisions), 1), bool) if mask is None else inputs[mask] == 0
    row_weights = class_weights(decisions, network.problem.idle_decision)

    @tf.function  # type: ignore[untyped-decorator]
    def gradient(vector: Any, x: Any, closed_columns: Any, y: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(vector)
            scores = network.scores(network.layers(vector, ops), x, ops)
            scores = tf.where(closed_columns, MASKED_SCORE, scores)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores)
            loss = tf.reduce_mean(losses * w)
        return tape.gradient(loss, vector)

    weights = network.initial_weights(settings.seed).astype(np.float64)
    adam = Adam.start(network.size)
    for number in range(settings.steps):
        batch = random.choice(rows, min(settings.batch_size, len(rows)), replace=False)
        g = gradient(
            to_grid(weights), encoded[batch], closed[batch], decisions[batch], row_weights[batch]
        )
        adam, direction = adam.step(g.numpy().astype(np.float64))
        rate = settings.learning_rate * (0.1 + 0.45 * (1 + np.cos(np.pi * number / settings.steps)))
        weights = np.clip(weights - rate * direction, -WEIGHT_LIMIT, WEIGHT_LIMIT)

    result = to_grid(weights)
    test = held_out if len(held_out) else rows
    decided = network.decide(result, {name: values[test] for name, values in inputs.items()})
    return result, _accuracy(decided, decisions[test], network.problem.idle_decision)


def _accuracy(decided: IntArray, expected: IntArray, idle_decision: int) -> Accuracy:
    equal = decided == expected
    idle = expected == idle_decision

    def share(rows: npt.NDArray[np.bool_]) -> float:
        return float(equal[rows].mean()) if rows.any() else 1.0

    return Accuracy(len(equal), share(np.ones_like(idle)), share(idle), share(~idle))
