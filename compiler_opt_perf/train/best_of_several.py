# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Best-of-several imitation, BC-Max: clones, context by context, the best of several policies.

T. V. Marinov, A. Agarwal, M. Trofin, "Offline Imitation Learning from Multiple Baselines with
Applications to Compiler Optimization", 2024, algorithm 1: each decision of the best trajectory of a
context is imitated, and the result is one of the policies of the next iteration. Knows nothing of
compilers: the caller finds the best trajectories.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.train.algorithm import ROWS, Arrays
from compiler_opt_perf.train.gradient_descent import descend

_BEST = ROWS + "best."
# Of trajectories that are kept; the latest stay.
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
      inputs: of the network, by feature, [rows] or [rows, columns] each.
      decisions: [rows], the best policies'.
    """
    new = {_BEST + name: values for name, values in inputs.items()}
    new[_BEST + "decisions"] = decisions
    return {
        name: np.concatenate([array, new[name]])[-_MOST_ROWS:] if name in new else array
        for name, array in state.items()
    }


def update(
    network: Network,
    state: Arrays,
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
) -> dict[str, npt.NDArray[Any]]:
    """Maximises E[ log pi(a|s) ] over the state's trajectories, from the student before."""
    inputs = {feature.name: state[_BEST + feature.name] for feature in network.features}
    decisions = state[_BEST + "decisions"]
    weights = descend(
        network,
        inputs,
        np.eye(network.problem.decisions)[decisions],
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        start=state["weights"],
    )
    return {**state, "weights": weights.astype(np.float64)}
