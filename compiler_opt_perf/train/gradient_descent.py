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

from compiler_opt_perf.policy.encoding import ACTIVATION_LIMIT, GRID, FloatArray
from compiler_opt_perf.policy.network import (
    MASKED_SCORE,
    WEIGHT_LIMIT,
    Network,
    to_grid,
)
from compiler_opt_perf.train.adam import Adam

Floats = npt.NDArray[np.floating[Any]]


def descend(
    network: Network,
    inputs: Mapping[str, npt.NDArray[Any]],
    targets: Floats,
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    row_weights: FloatArray | None = None,
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

    weights = (network.initial_weights(seed) if start is None else start).astype(np.float64)
    adam = Adam.start(network.size)
    for number in range(steps):
        batch = random.integers(0, rows, batch_size)
        own = to_grid(weights)
        arrays = encoded[batch], margin[batch], closed[batch], labels[batch], counts[batch]
        adam, direction = adam.step(gradient(network, own, *arrays))
        rate = learning_rate * (0.1 + 0.45 * (1 + np.cos(np.pi * number / steps)))
        weights = np.clip(weights - rate * direction, -WEIGHT_LIMIT, WEIGHT_LIMIT)
    return weights.astype(np.float32)


def gradient(
    network: Network,
    weights: FloatArray,
    encoded: FloatArray,
    margin: FloatArray,
    closed: npt.NDArray[np.bool_],
    targets: FloatArray,
    row_weights: FloatArray,
) -> npt.NDArray[np.float64]:
    """The gradient of the mean cross-entropy, by backpropagation.

    In double precision: the sums of other processors differ in digits that no weight depends on.

    Args:
      weights: float32 [network.size], on the grid.
      encoded: as Network.encode returns it.
      margin: [rows, decisions], added to the scores.
      closed: [rows, decisions], where a decision is not admissible.
      targets: [rows, decisions], probabilities.
      row_weights: [rows].

    Returns:
      float64 [network.size].
    """
    layers = network.layers(weights.astype(np.float64))
    # [rows * columns, width], by layer. The sums are exact, so these are the compiler's values.
    columns = np.transpose(encoded, (0, 2, 1)).astype(np.float64)
    activations = [columns.reshape(-1, encoded.shape[1])]
    for matrix, bias in layers[:-1]:
        rounded = np.rint((activations[-1] @ matrix + bias) / GRID) * GRID
        activations.append(np.clip(rounded, 0, ACTIVATION_LIMIT))
    matrix, bias = layers[-1]
    scores = (activations[-1] @ matrix + bias).reshape(targets.shape) + margin
    scores = np.where(closed, MASKED_SCORE, scores)
    likelihoods = np.exp(scores - scores.max(axis=1, keepdims=True))
    likelihoods /= likelihoods.sum(axis=1, keepdims=True)

    slope = (likelihoods - targets) * (row_weights / len(targets))[:, None]
    slope = np.where(closed, 0, slope).reshape(-1, matrix.shape[1])
    parts = []
    for (matrix, _), activation in zip(reversed(layers), reversed(activations), strict=True):
        parts += [slope.sum(axis=0), (activation.T @ slope).ravel()]
        # Rounding passes the slope, and limits stop it.
        inside = (activation > 0) & (activation < ACTIVATION_LIMIT)
        slope = (slope @ matrix.T) * inside
    return np.concatenate(parts[::-1])
