# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""CMA-ES: samples weights from a normal distribution that adapts to what was cheap before.

N. Hansen, "The CMA Evolution Strategy: A Tutorial", 2016, as the package `cmaes` has it. The
covariance has the square of the number of weights, so that it is for few of them.
"""

from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from compiler_opt_perf.policy.network import WEIGHT_LIMIT
from compiler_opt_perf.run.json_text import FieldError
from compiler_opt_perf.train.algorithm import (
    Algorithm,
    Arrays,
    Count,
    StageSettings,
    Step,
    Vector,
    facts_of,
    limited,
)

# With fewer candidates it has no direction to go.
_LEAST_POPULATION = 4


class CmaEs(StageSettings, frozen=True, kw_only=True, tag="cma-es"):
    """Adapts a normal distribution of a few weights."""

    packages = ("cmaes",)

    parameters: Annotated[
        Literal["biases", "last-layer", "all"], Meta(description="which weights it changes")
    ] = "last-layer"
    population: Annotated[
        int, Meta(ge=0, le=10**4, description="candidates in an iteration; 0: by their number")
    ] = 0
    sigma: Annotated[
        float, Meta(ge=1e-4, le=1, description="standard deviation, to begin with")
    ] = 0.03
    modules: Annotated[
        Count, Meta(description="on which the candidates of an iteration are compared")
    ] = 8

    def __post_init__(self) -> None:
        if 0 < self.population < _LEAST_POPULATION:
            raise FieldError(
                "population", f"{self.population}: expected 0, or {_LEAST_POPULATION} and more"
            )


def start(mean: Vector, sigma: float) -> Arrays:
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


def ask(state: Arrays, population: int, seed: int) -> tuple[Any, Vector]:
    """Samples candidates.

    Args:
      state: from `start` or `tell`.
      population: candidates; 0: 4 + 3 log(size).

    Returns:
      The optimiser, for `tell`, and the candidates, float64 [candidates, size].
    """
    # Loads SciPy where there is one, which the modules of pool workers' jobs must not.
    from cmaes import CMA

    optimiser = CMA(
        # Rounding can leave the mean a bit outside.
        mean=limited(state["mean"]),
        sigma=float(state["sigma"]),
        bounds=np.tile([-WEIGHT_LIMIT, WEIGHT_LIMIT], (len(state["mean"]), 1)),
        seed=seed % 2**32,
        population_size=population or None,
        cov=state["covariance"].copy(),
    )
    # The constructor has no arguments for these; the tests compare resumed runs with whole ones.
    optimiser._p_sigma = state["path_of_sigma"].copy()
    optimiser._pc = state["path_of_covariance"].copy()
    optimiser._g = int(state["generation"])
    return optimiser, np.array([optimiser.ask() for _ in range(optimiser.population_size)])


def tell(optimiser: Any, candidates: Vector, fitness: Vector) -> Arrays:
    """Moves the distribution towards the fittest (Hansen 2016, equations 9 to 37).

    Args:
      optimiser, candidates: from `ask`.
      fitness: [candidates], higher is better; -inf for one that could not be measured.

    Returns:
      The next state.
    """
    optimiser.tell([(one, -value) for one, value in zip(candidates, fitness.tolist(), strict=True)])
    following = {
        "mean": optimiser.mean,
        "sigma": optimiser._sigma,
        "covariance": optimiser._C,
        "path_of_sigma": optimiser._p_sigma,
        "path_of_covariance": optimiser._pc,
        "generation": np.int64(optimiser.generation),
    }
    return {name: np.array(value) for name, value in following.items()}


class CmaEsStage(Algorithm[CmaEs]):
    """CMA-ES over some of the weights, on training modules."""

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """A distribution around the weights."""
        chosen = np.asarray(weights, np.float64)[self._chosen()]
        own = start(chosen, self.settings.sigma)
        return {"weights": weights.astype(np.float64), **own}

    def iterate(self, state: Arrays, number: int) -> Step:
        """One generation; its mean and the fittest of its candidates are validated."""
        chosen = self._chosen()

        def whole(values: Vector) -> Vector:
            weights = state["weights"].copy()
            weights[chosen] = values
            return weights

        optimiser, candidates = ask(
            state, self.settings.population, self.env.seed("samples", number)
        )
        weights = [whole(one) for one in candidates]
        measured = self.env.measure(weights, self.settings.modules, number)
        fitness = np.array([-one.change for one in measured])
        following = tell(optimiser, candidates, fitness)
        mean = whole(limited(following["mean"]))
        facts = {**facts_of(measured), "sigma": float(following["sigma"])}
        fittest = weights[int(fitness.argmax())]
        return Step({"weights": mean, **following}, self.propose(mean, fittest), facts)

    def _chosen(self) -> npt.NDArray[np.bool_]:
        """Which weights change, [size]."""
        network = self.env.network
        layers = network.layers(np.arange(network.size))
        chosen = np.zeros(network.size, bool)
        if self.settings.parameters == "all":
            chosen[:] = True
        elif self.settings.parameters == "last-layer":
            for numbers in layers[-1]:
                chosen[numbers.reshape(-1)] = True
        else:
            for _, numbers in layers:
                chosen[numbers] = True
        return chosen
