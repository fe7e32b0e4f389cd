# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Behavioural cloning: a network that imitates the compiler's own decisions.

Cross-entropy between the network's scores and the logged decisions (train.gradient_descent).
"""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from absl import logging
from msgspec import Meta

from compiler_opt_perf.policy.encoding import FloatArray
from compiler_opt_perf.policy.network import IntArray, Network, to_grid
from compiler_opt_perf.train.algorithm import (
    Algorithm,
    Arrays,
    Count,
    Rate,
    StageSettings,
    Step,
    Steps,
)
from compiler_opt_perf.train.gradient_descent import descend


class Cloning(StageSettings, frozen=True, kw_only=True, tag="cloning"):
    """Imitates the compiler's own decisions."""

    tries: Annotated[
        int, Meta(ge=1, le=100, description="imitations; validation chooses among them")
    ] = 3
    steps: Annotated[Steps, Meta(description="gradient steps of an imitation")] = 1000
    batch_size: Annotated[Count, Meta(description="decisions in a gradient step")] = 512
    learning_rate: Annotated[Rate, Meta(description="Adam's, decaying to a tenth")] = 0.02
    # Without it the scores lie far apart, and small changes of the weights change no decision.
    label_smoothing: Annotated[
        float, Meta(ge=0, le=0.99, description="probability that is spread over all decisions")
    ] = 0.1


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
    settings: Cloning,
    seed: int,
) -> FloatArray:
    """Minimises the cross-entropy -E[ sum_a y(a) log pi(a|s) ] over logged decisions.

    The label y is 1 - label_smoothing for the compiler's decision; the rest is spread over all
    admissible ones.

    Args:
      inputs: as in Network.encode, [rows] or [rows, columns] each.
      decisions: int64 [rows], the compiler's own.
      seed: for initial weights and batches.

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
        seed=seed,
        row_weights=class_weights(decisions, problem.idle_decision),
    )


def accuracy(
    network: Network,
    weights: FloatArray,
    inputs: Mapping[str, npt.NDArray[Any]],
    decisions: IntArray,
) -> tuple[float, float, float]:
    """How often the network decides as the compiler did; arguments as for `train`.

    Returns:
      The share of equal decisions among all, among the idle ones (no inlining, no eviction) and
      among the others; 1 where there are none.
    """
    equal = network.decide(to_grid(weights), inputs) == decisions
    idle = decisions == network.problem.idle_decision
    rows = (equal, equal[idle], equal[~idle])
    overall, of_idle, of_active = (float(one.mean()) if one.size else 1.0 for one in rows)
    return overall, of_idle, of_active


class CloningStage(Algorithm[Cloning]):
    """Imitations of the compiler's decisions in the training modules, from initial weights."""

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """Nothing but the weights, which are not used."""
        return {"weights": weights.astype(np.float64)}

    def iterate(self, state: Arrays, number: int) -> Step:
        """Several imitations: the costs of nearly equal ones can differ by several per cent."""
        env, network = self.env, self.env.network
        inputs, decisions = env.default_decisions(env.training)
        weights = [
            train(network, inputs, decisions, self.settings, env.seed("imitation", number, one))
            for one in range(self.settings.tries)
        ]
        unseen, decided = env.default_decisions(env.validation)
        overall, idle, active = accuracy(network, weights[0], unseen, decided)
        logging.info(
            "the first imitation equals the compiler in %.1f%% of %d decisions of the validation "
            "modules (%.1f%% where it acts, %.1f%% where not)",
            *(100 * overall, len(decided), 100 * active, 100 * idle),
        )
        facts = {"equals_default": overall}
        return Step(self.start(weights[0]), self.propose(*weights), facts)
