# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evolution strategies: improves a weight vector from the fitness of perturbed copies.

T. Salimans, J. Ho, X. Chen, S. Sidor, I. Sutskever, "Evolution Strategies as a Scalable Alternative
to Reinforcement Learning", 2017, with antithetic pairs, rank-shaped fitness and Adam.
"""

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.adam import Adam
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


class EvolutionStrategies(StageSettings, frozen=True, kw_only=True, tag="evolution-strategies"):
    """Steps along the fitness of perturbed weights."""

    pairs: Annotated[
        int, Meta(ge=1, le=10**4, description="antithetic pairs of candidates in an iteration")
    ] = 8
    sigma: Annotated[
        float, Meta(ge=1e-4, le=1, description="standard deviation of the perturbations")
    ] = 0.03
    learning_rate: Annotated[float, Meta(ge=0, le=1, description="Adam's")] = 0.01
    modules: Annotated[
        Count, Meta(description="on which the candidates of an iteration are compared")
    ] = 8


def start(theta: npt.NDArray[Any]) -> Arrays:
    """The state before the first generation: the weights [size], and no moments of a gradient."""
    return {"weights": theta.astype(np.float64), **Adam.start(theta.size).arrays()}


def ask(state: Arrays, settings: EvolutionStrategies, seed: int) -> tuple[Vector, list[Vector]]:
    """Draws the candidates of a generation: theta + sigma e and theta - sigma e for each e.

    The perturbations depend on the seed and the generation's number alone. So a run that goes on
    from a stored state equals one that was never interrupted.

    Returns:
      The noise e, float64 [pairs, size], and the candidates, float64 [size] each, pair by pair.
    """
    theta = state["weights"]
    random = np.random.default_rng(derive_seed(seed, "generation", int(state["steps"])))
    noise = random.standard_normal((settings.pairs, theta.size))
    return noise, [theta + sign * settings.sigma * e for e in noise for sign in (1, -1)]


def tell(state: Arrays, noise: Vector, fitness: Vector, settings: EvolutionStrategies) -> Arrays:
    """Steps along the gradient that the fitness of n pairs estimates (Salimans et al., section 2):

      g = 1 / (2 n sigma) * sum_i (F(theta + sigma e_i) - F(theta - sigma e_i)) e_i

    with ranks as F, and Adam. The weights are then limited: beyond the limits all candidates would
    be clipped to the same weights.

    Args:
      noise: e, float64 [pairs, size].
      fitness: F, higher is better; float64 [2 * pairs], in the order of `ask`.

    Returns:
      The next state.
    """
    shaped = centered_ranks(fitness.reshape(-1, 2))
    gradient = (shaped[:, 0] - shaped[:, 1]) @ noise / (2 * len(noise) * settings.sigma)
    adam, direction = Adam.of(state).step(gradient)
    theta = limited(state["weights"] + settings.learning_rate * direction)
    return {"weights": theta, **adam.arrays()}


def centered_ranks(fitness: Vector) -> Vector:
    """Ranks scaled to [-0.5, 0.5], same shape; equal fitness gets the mean of its ranks.

    Makes the update independent of the fitness's scale and of outliers.
    """
    flat = fitness.ravel()
    # Position among the sorted values, averaged over ties.
    low = np.searchsorted(np.sort(flat), flat, side="left")
    high = np.searchsorted(np.sort(flat), flat, side="right") - 1
    ranks = (low + high) / 2.0
    return np.asarray((ranks / max(flat.size - 1, 1) - 0.5).reshape(fitness.shape))


class EvolutionStrategiesStage(Algorithm[EvolutionStrategies]):
    """Evolution strategies on training modules."""

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """Calls the function `start`."""
        return start(weights)

    def iterate(self, state: Arrays, number: int) -> Step:
        """One generation.

        The step is an average over few candidates. With a small budget the fittest of them is
        often ahead of it: both are validated.
        """
        noise, candidates = ask(state, self.settings, self.env.seed("noise"))
        measured = self.env.measure(candidates, self.settings.modules, number)
        fitness = np.array([-one.change for one in measured])
        following = tell(state, noise, fitness, self.settings)
        fittest = candidates[int(fitness.argmax())]
        return Step(following, self.propose(following["weights"], fittest), facts_of(measured))
