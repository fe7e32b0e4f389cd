# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fits a network to given probabilities of its decisions.

Cross-entropy, minimised by Adam. The forward pass is the one that runs in the compiler, rounded to
its grid by additions, which gradients pass unchanged (straight-through estimator, Bengio et al.
2013): what was trained is what is used.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.network import (
    MASKED_SCORE,
    WEIGHT_LIMIT,
    FloatArray,
    Network,
    to_grid,
)
from compiler_opt_perf.policy.tensorflow_ops import tensorflow_ops
from compiler_opt_perf.run.tensorflow_environment import import_tensorflow
from compiler_opt_perf.train.adam import Adam


def descend(
    network: Network,
    inputs: Mapping[str, npt.NDArray[Any]],
    targets: npt.NDArray[np.floating[Any]],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    row_weights: npt.NDArray[np.float32] | None = None,
    start: npt.NDArray[Any] | None = None,
) -> FloatArray:
    """Fits the weights.

    Args:
      inputs: as in Network.encode, [rows] or [rows, columns] each.
      targets: [rows, decisions], probabilities; 0 where a decision is not admissible.
      batch_size: rows a step.
      learning_rate: Adam's, decaying to a tenth (cosine).
      seed: for initial weights and batches.
      row_weights: float32 [rows], how much each counts; None: all the same.
      start: the weights to begin with; None: initial ones.

    Returns:
      The weights, float32 [network.size], not yet on the grid.
    """
    tf = import_tensorflow()
    # The same seed gives the same weights, whatever the number of threads.
    tf.config.experimental.enable_op_determinism()
    ops = tensorflow_ops()
    random = np.random.default_rng(seed)

    rows = len(targets)
    encoded = network.encode(inputs)
    # The margin is no input of the perceptron, but part of what it is compared by.
    margin = np.zeros(targets.shape, np.float32)
    if network.default_lead:
        margin = (network.default_lead * network.is_default(inputs)).astype(np.float32)
    mask = network.problem.mask
    closed = np.zeros(targets.shape, bool) if mask is None else inputs[mask] == 0
    labels = targets.astype(np.float32)
    counts = np.ones(rows, np.float32) if row_weights is None else row_weights

    @tf.function  # type: ignore[untyped-decorator]
    def gradient(vector: Any, x: Any, offset: Any, closed_columns: Any, y: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(vector)
            scores = network.scores(network.layers(vector, ops), x, ops) + offset
            scores = tf.where(closed_columns, MASKED_SCORE, scores)
            losses = tf.nn.softmax_cross_entropy_with_logits(labels=y, logits=scores)
            loss = tf.reduce_mean(losses * w)
        return tape.gradient(loss, vector)

    weights = (network.initial_weights(seed) if start is None else start).astype(np.float64)
    adam = Adam.start(network.size)
    for number in range(steps):
        batch = random.integers(0, rows, batch_size)
        arrays = (array[batch] for array in (encoded, margin, closed, labels, counts))
        adam, direction = adam.step(gradient(to_grid(weights), *arrays).numpy().astype(np.float64))
        rate = learning_rate * (0.1 + 0.45 * (1 + np.cos(np.pi * number / steps)))
        weights = np.clip(weights - rate * direction, -WEIGHT_LIMIT, WEIGHT_LIMIT)
    return weights.astype(np.float32)
