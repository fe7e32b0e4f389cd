# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Proximal policy optimisation: steps along the gradient of sampled decisions' rewards.

J. Schulman, F. Wolski, P. Dhariwal, A. Radford, O. Klimov, "Proximal Policy Optimization
Algorithms", 2017. Each decision has a reward of its own, so that no discount and no return over
time is needed: the advantage is the reward less a learned value of the state.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from compiler_opt_perf.policy.network import MASKED_SCORE, Network, to_grid
from compiler_opt_perf.policy.tensorflow_ops import tensorflow_ops
from compiler_opt_perf.run.tensorflow_environment import import_tensorflow
from compiler_opt_perf.train.adam import Adam
from compiler_opt_perf.train.algorithm import (
    Algorithm,
    Arrays,
    Count,
    Rate,
    StageSettings,
    Step,
    Vector,
    limited,
)
from compiler_opt_perf.train.rollouts import explore, joined

_VALUE_WIDTH = 16


class Ppo(StageSettings, frozen=True, kw_only=True, tag="ppo"):
    """Steps along the policy gradient of sampled decisions."""

    packages = ("tensorflow-cpu",)

    modules: Annotated[Count, Meta(description="that are compiled in an iteration")] = 8
    rollouts: Annotated[
        int, Meta(ge=1, le=1000, description="compilations of each with sampled decisions")
    ] = 3
    temperature: Annotated[
        float, Meta(gt=0, le=100, description="of the scores that decisions are sampled from")
    ] = 0.1
    clip_epsilon: Annotated[float, Meta(ge=0, le=1, description="of the probability ratio")] = 0.2
    entropy_coefficient: Annotated[Rate, Meta(description="of the bonus for exploring")] = 0.003
    epochs: Annotated[int, Meta(ge=1, le=1000, description="over the decisions")] = 4
    batch_size: Annotated[Count, Meta(description="decisions in a gradient step")] = 256
    learning_rate: Annotated[Rate, Meta(description="Adam's, of policy and value")] = 0.01


@dataclass(frozen=True)
class Rollout:
    """Sampled decisions.

    Attributes:
      inputs: the network's inputs by feature, [rows] or [rows, columns] each.
      decisions: int64 [rows].
      log_probability: float32 [rows], of each when it was sampled.
      reward: float32 [rows].
    """

    inputs: dict[str, npt.NDArray[Any]]
    decisions: npt.NDArray[np.int64]
    log_probability: npt.NDArray[np.float32]
    reward: npt.NDArray[np.float32]


def start(network: Network, weights: npt.NDArray[Any], seed: int) -> Arrays:
    """The state before the first update: the policy's weights, and a value of 0 everywhere."""
    random = np.random.default_rng(seed)
    width = network.layer_widths[0]
    hidden = random.normal(0.0, np.sqrt(2.0 / width), width * _VALUE_WIDTH)
    value = np.concatenate([hidden, np.zeros(2 * _VALUE_WIDTH + 1)])
    adam = Adam.start(network.size + len(value))
    return {"weights": weights.astype(np.float64), "value": value, **adam.arrays()}


def value_of(vector: Any, encoded: Any, ops: Any) -> Any:
    """V(s), [rows], of encoded inputs [rows, width, columns]: a perceptron of their mean."""
    width = encoded.shape[1]
    cut = width * _VALUE_WIDTH
    mean = ops.mean(encoded)
    hidden = ops.relu(
        ops.matmul(mean, ops.reshape(vector[:cut], (width, _VALUE_WIDTH)))
        + vector[cut : cut + _VALUE_WIDTH]
    )
    last = ops.reshape(vector[cut + _VALUE_WIDTH : -1], (_VALUE_WIDTH, 1))
    return ops.reshape(ops.matmul(hidden, last), (-1,)) + vector[-1]


def update(
    network: Network, state: Arrays, rollout: Rollout, settings: Ppo, seed: int
) -> tuple[Arrays, dict[str, float]]:
    """Maximises, by Adam, over the decisions of a rollout,

      E[ min(r A, clip(r, 1 - epsilon, 1 + epsilon) A) ] - 1/2 E[ (V(s) - R)^2 ] + c E[ H(pi) ]

    with r = pi(a|s) / pi_old(a|s) and the advantage A = R - V_old(s), brought to mean 0 and
    deviation 1 (equations 7 and 9 of the paper).

    Args:
      state: from `start` or the update before.
      seed: for the batches.

    Returns:
      The next state, and facts: the mean reward, and the share of its variance that V_old told.
    """
    tf = import_tensorflow()
    tf.config.experimental.enable_op_determinism()
    ops = tensorflow_ops()
    ops.relu, ops.mean = tf.nn.relu, lambda values: tf.reduce_mean(values, axis=2)
    encoded = network.encode(rollout.inputs)
    margin = (network.default_lead * network.is_default(rollout.inputs)).astype(np.float32)
    mask = network.problem.mask
    closed = np.zeros(margin.shape, bool) if mask is None else rollout.inputs[mask] == 0
    taken = np.eye(network.problem.decisions, dtype=np.float32)[rollout.decisions]
    size, rows = network.size, len(taken)
    value = value_of(tf.constant(state["value"], tf.float32), encoded, ops).numpy()
    advantage = rollout.reward - value
    told = 1.0 - float(advantage.var() / max(rollout.reward.var(), 1e-12))
    advantage = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).astype(np.float32)

    # Not a tf.function: an update has some dozen steps, and tracing takes as long as hundreds.
    def gradient(
        theta: Any, phi: Any, x: Any, offset: Any, shut: Any, a: Any, old: Any, adv: Any, ret: Any
    ) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([theta, phi])
            scores = network.scores(network.layers(theta, ops), x, ops) + offset
            scores = tf.where(shut, MASKED_SCORE, scores / settings.temperature)
            log_pi = tf.nn.log_softmax(scores)
            ratio = tf.exp(tf.reduce_sum(log_pi * a, axis=1) - old)
            clipped = tf.clip_by_value(
                ratio, 1.0 - settings.clip_epsilon, 1.0 + settings.clip_epsilon
            )
            surrogate = tf.reduce_mean(tf.minimum(ratio * adv, clipped * adv))
            entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_pi) * log_pi, axis=1))
            value_loss = 0.5 * tf.reduce_mean(tf.square(value_of(phi, x, ops) - ret))
            loss = value_loss - surrogate - settings.entropy_coefficient * entropy
        return tape.gradient(loss, [theta, phi])

    arrays = (encoded, margin, closed, taken, rollout.log_probability, advantage, rollout.reward)
    adam = Adam.of(state)
    both: Vector = np.concatenate([state["weights"], state["value"]])
    random = np.random.default_rng(seed)
    for _ in range(settings.epochs):
        order = random.permutation(rows)
        for first in range(0, rows, settings.batch_size):
            batch = order[first : first + settings.batch_size]
            theta, phi = map(tf.constant, (to_grid(both[:size]), both[size:].astype(np.float32)))
            found = gradient(theta, phi, *(array[batch] for array in arrays))
            adam, direction = adam.step(np.concatenate([g.numpy() for g in found]).astype(float))
            both = both - settings.learning_rate * direction
            both[:size] = limited(both[:size])
    following = {"weights": both[:size], "value": both[size:], **adam.arrays()}
    return following, {"reward": float(rollout.reward.mean()), "value_told": told}


class PpoStage(Algorithm[Ppo]):
    """PPO on decisions of the training modules."""

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """Calls the function `start`."""
        return start(self.env.network, weights, self.env.seed("value"))

    def iterate(self, state: Arrays, number: int) -> Step:
        """Rollouts of some modules, and an update."""
        env, settings = self.env, self.settings
        explored = env.roll_out(
            explore,
            state["weights"],
            number,
            modules=settings.modules,
            temperature=settings.temperature,
            samples=settings.rollouts,
            compilations=settings.rollouts + 1,
        )
        rollout = Rollout(
            joined([one.inputs for one in explored]),
            np.concatenate([one.decisions for one in explored]),
            np.concatenate([one.log_probability for one in explored]),
            np.concatenate([one.reward for one in explored]),
        )
        seed = env.seed("batches", number)
        following, facts = update(env.network, state, rollout, settings, seed)
        facts = {**facts, "decisions": len(rollout.decisions)}
        return Step(following, self.propose(following["weights"]), facts)
