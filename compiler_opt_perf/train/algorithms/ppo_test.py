# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.policy.network import Network, to_grid
from compiler_opt_perf.policy.problem import PROBLEMS, Problem
from compiler_opt_perf.policy.testing import random_inputs, random_network
from compiler_opt_perf.train.algorithm import Arrays
from compiler_opt_perf.train.algorithms import ppo

SETTINGS = ppo.Ppo(
    clip_epsilon=0.2,
    entropy_coefficient=0.0,
    temperature=0.5,
    epochs=4,
    batch_size=50,
    learning_rate=0.03,
)


def log_probabilities(
    network: Network, state: Arrays, inputs: dict[str, npt.NDArray[Any]]
) -> npt.NDArray[np.float32]:
    """log pi(a|s), [rows, decisions]."""
    layers = network.layers(to_grid(state["weights"]))
    scores = network.masked_scores(layers, inputs) / SETTINGS.temperature
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))


def rollout(network: Network, state: Arrays, good: npt.NDArray[np.int64], seed: int) -> ppo.Rollout:
    """Decisions drawn from the policy; the good one of each row has a reward."""
    inputs = random_inputs(network.problem, len(good), seed=2)
    log_pi = log_probabilities(network, state, inputs)
    random = np.random.default_rng(seed)
    decisions = np.array([random.choice(len(p), p=p / p.sum()) for p in np.exp(log_pi)])
    rows = np.arange(len(good))
    reward = 3.0 + (decisions == good)
    return ppo.Rollout(inputs, decisions, log_pi[rows, decisions], reward.astype(np.float32))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_rewarded_decisions_become_likelier(problem: Problem) -> None:
    network = dataclasses.replace(random_network(problem), default_lead=0.25)
    inputs = random_inputs(problem, 200, seed=2)
    good = np.argmax(network.is_default(inputs), axis=1)
    # The opposite of what it begins with, or always the idle one.
    good = 1 - good if problem.mask is None else np.full(200, problem.idle_decision)
    state = ppo.start(network, network.initial_weights(1), seed=1)
    likely, told = [], []
    for number in range(6):
        drawn = rollout(network, state, good, number)
        likely.append(np.exp(log_probabilities(network, state, inputs))[range(200), good].mean())
        state, facts = ppo.update(network, state, drawn, SETTINGS, number)
        told.append(facts["value_told"])
    assert likely[-1] > 1.5 * likely[0]
    # The value begins at 0, where it tells nothing, and is learnt.
    assert told[0] == pytest.approx(0.0, abs=1e-6)
    assert state["value"].any()


def test_nothing_moves_where_no_decision_is_better() -> None:
    network = dataclasses.replace(random_network(PROBLEMS["inline-size"]), default_lead=0.25)
    state = ppo.start(network, network.initial_weights(1), seed=1)
    drawn = rollout(network, state, np.zeros(100, np.int64), 1)
    same = dataclasses.replace(drawn, reward=np.zeros(100, np.float32))
    following, _ = ppo.update(network, state, same, SETTINGS, 1)
    np.testing.assert_array_equal(following["weights"], state["weights"])


def test_an_update_repeats_itself_and_keeps_its_arguments() -> None:
    network = dataclasses.replace(random_network(PROBLEMS["inline-size"]), default_lead=0.25)
    state = ppo.start(network, network.initial_weights(1), seed=1)
    before = {name: array.copy() for name, array in state.items()}
    drawn = rollout(network, state, np.zeros(100, np.int64), 1)
    one, _ = ppo.update(network, state, drawn, SETTINGS, 1)
    other, _ = ppo.update(network, state, drawn, SETTINGS, 1)
    for name in state:
        np.testing.assert_array_equal(one[name], other[name])
        np.testing.assert_array_equal(before[name], state[name])
        assert one[name].dtype == state[name].dtype and one[name].shape == state[name].shape
