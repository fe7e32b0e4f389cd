# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""CMA-ES: samples weights from a normal distribution that adapts to what was cheap before.

N. Hansen, "The CMA Evolution Strategy: A Tutorial", 2016, as the package `cmaes` has it. Its
covariance has the square of the number of weights, so that it is for few of them. Knows nothing of
compilers: the caller measures fitness.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.train.algorithm import Arrays, Vector


def start(mean: Vector, sigma: float) -> dict[str, npt.NDArray[Any]]:
    """The distribution before the first iteration: normal around `mean` [size], with `sigma`."""
    size = len(mean)
    return {
        "mean": mean.astype(np.float64),
        "sigma": np.array(sigma, np.float64),
        "covariance": np.eye(size),
        "path_of_sigma": np.zeros(size),
        "path_of_covariance": np.zeros(size),
        "generation": np.array(0, np.int64),
    }


def iterate(
    state: Arrays, population: int, bound: float, seed: int, evaluate: Callable[[Any], Vector]
) -> tuple[dict[str, npt.NDArray[Any]], Vector]:
    """Samples candidates, and moves the distribution towards the fittest.

    Args:
      state: of `start` or of the iteration before.
      population: candidates; 0: 4 + 3 log(size).
      bound: candidates lie in [-bound, bound].
      seed: of the samples.
      evaluate: fitness (higher is better) of each of the candidates, [candidates, size]; -inf for
        one that could not be measured at all.

    Returns:
      The next state, and the fittest candidate, float64 [size].
    """
    # Loads SciPy where there is one, which the modules of pool workers' jobs must not.
    from cmaes import CMA

    size = len(state["mean"])
    optimiser = CMA(
        # Rounding can leave the mean a bit outside.
        mean=np.clip(state["mean"], -bound, bound),
        sigma=float(state["sigma"]),
        bounds=np.tile([-bound, bound], (size, 1)),
        seed=seed % 2**32,
        population_size=population or None,
        cov=state["covariance"].copy(),
    )
    # What the constructor has no arguments for.
    optimiser._p_sigma = state["path_of_sigma"].copy()
    optimiser._pc = state["path_of_covariance"].copy()
    optimiser._g = int(state["generation"])
    candidates = np.array([optimiser.ask() for _ in range(optimiser.population_size)])
    fitness = evaluate(candidates)
    optimiser.tell([(one, -value) for one, value in zip(candidates, fitness.tolist(), strict=True)])
    following: Mapping[str, Any] = {
        "mean": optimiser.mean,
        "sigma": optimiser._sigma,
        "covariance": optimiser._C,
        "path_of_sigma": optimiser._p_sigma,
        "path_of_covariance": optimiser._pc,
        "generation": np.int64(optimiser.generation),
    }
    arrays = {name: np.array(value) for name, value in following.items()}
    return arrays, np.asarray(candidates[int(fitness.argmax())])
