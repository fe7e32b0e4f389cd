# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""BC-Max: clones, context by context, the best of several policies.

T. V. Marinov, A. Agarwal, M. Trofin, "Offline Imitation Learning from Multiple Baselines with
Applications to Compiler Optimization", 2024, algorithm 1: each decision of the best trajectory of a
context is imitated, and the result is one of the policies of the next iteration.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.train.algorithm import (
    ROWS,
    Algorithm,
    Arrays,
    Count,
    Rate,
    StageSettings,
    Step,
    Steps,
)
from compiler_opt_perf.train.gradient_descent import descend
from compiler_opt_perf.train.rollouts import best_of, joined


class BcMax(StageSettings, frozen=True, kw_only=True, tag="bc-max"):
    """Imitates the best of several policies, part by part."""

    modules: Annotated[Count, Meta(description="that are compiled in an iteration")] = 8
    thresholds: Annotated[
        tuple[Annotated[int, Meta(ge=-(10**6), le=10**6)], ...],
        Meta(
            max_length=32,
            description="policies: inline what the compiler estimates to cost less than this "
            "(where a problem has an estimate)",
        ),
    ] = (-25, 15, 50)
    explored: Annotated[
        int, Meta(ge=0, le=1000, description="policies: decisions sampled from the student")
    ] = 2
    temperature: Annotated[
        float, Meta(gt=0, le=100, description="of the scores that decisions are sampled from")
    ] = 0.1
    steps: Annotated[Steps, Meta(description="gradient steps an iteration")] = 300
    batch_size: Annotated[Count, Meta(description="decisions in a gradient step")] = 256
    learning_rate: Annotated[Rate, Meta(description="Adam's, decaying to a tenth")] = 0.005


_BEST = ROWS + "best."
# Rows of trajectories that are kept; the latest stay.
_MOST_ROWS = 20_000


def start(network: Network, weights: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """The state before the first iteration: the student, and no trajectories."""
    state: dict[str, npt.NDArray[Any]] = {"weights": weights.astype(np.float64)}
    for feature in network.features:
        state[_BEST + feature.name] = np.zeros((0, *feature.shape[1:]), feature.dtype)
    state[_BEST + "decisions"] = np.zeros(0, np.int64)
    return state


def with_rows(
    state: Arrays,
    inputs: Mapping[str, npt.NDArray[Any]],
    decisions: npt.NDArray[np.int64],
) -> dict[str, npt.NDArray[Any]]:
    """The state with further trajectories.

    Args:
      inputs: the network's inputs by feature, [rows] or [rows, columns] each.
      decisions: [rows], the best policies'.
    """
    new = {_BEST + name: values for name, values in inputs.items()}
    new[_BEST + "decisions"] = decisions
    return {
        name: np.concatenate([array, new[name]])[-_MOST_ROWS:] if name in new else array
        for name, array in state.items()
    }


def update(network: Network, state: Arrays, settings: BcMax, seed: int) -> Arrays:
    """Maximises E[ log pi(a|s) ] over the state's trajectories, from the student before.

    Args:
      seed: for the batches.
    """
    inputs = {feature.name: state[_BEST + feature.name] for feature in network.features}
    decisions = state[_BEST + "decisions"]
    weights = descend(
        network,
        inputs,
        np.eye(network.problem.decisions)[decisions],
        steps=settings.steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        seed=seed,
        start=state["weights"],
    )
    return {**state, "weights": weights.astype(np.float64)}


class BcMaxStage(Algorithm[BcMax]):
    """BC-Max on the training modules' best decisions."""

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """Calls the function `start`."""
        return start(self.env.network, weights)

    def iterate(self, state: Arrays, number: int) -> Step:
        """The best decisions of some modules, and imitation of all so far."""
        env, settings = self.env, self.settings
        best = env.roll_out(
            best_of,
            state["weights"],
            number,
            modules=settings.modules,
            temperature=settings.temperature,
            samples=settings.explored,
            thresholds=settings.thresholds,
            compilations=2 + len(settings.thresholds) + settings.explored,
        )
        inputs = joined([one.inputs for one in best])
        decisions = np.concatenate([one.decisions for one in best])
        state = with_rows(state, inputs, decisions)
        following = update(env.network, state, settings, env.seed("batches", number))
        facts = {
            "best_saves": float(np.mean([one.saved for one in best])),
            "decisions": len(following[_BEST + "decisions"]),
        }
        return Step(following, self.propose(following["weights"]), facts)
