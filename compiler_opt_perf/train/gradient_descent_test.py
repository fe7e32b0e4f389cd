# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from typing import Any

import numpy as np
import pytest

from compiler_opt_perf.policy.encoding import FloatArray, fit_normalisation
from compiler_opt_perf.policy.network import MASKED_SCORE, Network, to_grid
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.tensorflow_ops import tensorflow_ops
from compiler_opt_perf.policy.testing import random_inputs
from compiler_opt_perf.run.tensorflow_environment import import_tensorflow
from compiler_opt_perf.train.gradient_descent import descend, gradient


@pytest.mark.long(5)
@pytest.mark.parametrize("problem", ["inline-size", "regalloc-evict"])
def test_gradients_are_those_of_tensorflow(problem: str) -> None:
    pytest.importorskip("tensorflow")
    own = PROBLEMS[problem]
    random = np.random.default_rng(1)
    inputs = random_inputs(own, 64, seed=2)
    network = Network(own, False, (24, 12), fit_normalisation(inputs, own, with_pmu=False))
    weights = to_grid(random.normal(0, 0.4, network.size))
    shape = (64, own.decisions)
    closed = np.zeros(shape, bool) if own.mask is None else inputs[own.mask] == 0
    targets = random.random(shape) * ~closed
    targets /= targets.sum(axis=1, keepdims=True)
    arrays = (
        network.encode(inputs),
        random.normal(0, 1, shape).astype(np.float32),
        closed,
        targets.astype(np.float32),
        random.random(64).astype(np.float32),
    )
    ours = gradient(network, weights, *arrays)
    theirs = _tensorflow_gradient(network, weights, *arrays)
    assert np.count_nonzero(theirs) > network.size / 4
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)


def _tensorflow_gradient(network: Network, weights: FloatArray, *arrays: Any) -> FloatArray:
    encoded, margin, closed, targets, row_weights = arrays
    tf, ops = import_tensorflow(), tensorflow_ops()
    vector = tf.constant(weights)
    with tf.GradientTape() as tape:
        tape.watch(vector)
        scores = network.scores(network.layers(vector, ops), encoded, ops) + margin
        scores = tf.where(closed, MASKED_SCORE, scores)
        losses = tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=scores)
        loss = tf.reduce_mean(losses * row_weights)
    found: FloatArray = tape.gradient(loss, vector).numpy()
    return found


def test_a_network_learns_its_targets_and_the_same_ones_again() -> None:
    problem = PROBLEMS["inline-size"]
    inputs = random_inputs(problem, 200, seed=1)
    wanted = (inputs["callee_users"] > np.median(inputs["callee_users"])).astype(int)
    network = Network(problem, False, (8,), fit_normalisation(inputs, problem, with_pmu=False))

    def fit() -> FloatArray:
        targets = np.eye(problem.decisions)[wanted]
        return descend(
            network, inputs, targets, steps=300, batch_size=64, learning_rate=0.02, seed=3
        )

    weights = fit()
    assert (network.decide(to_grid(weights), inputs) == wanted).mean() > 0.95
    assert (fit() == weights).all()
