# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evolution strategies: improves a weight vector from the fitness of perturbed copies.

T. Salimans, J. Ho, X. Chen, S. Sidor, I. Sutskever, "Evolution Strategies as a Scalable Alternative
to Reinforcement Learning", 2017, with antithetic pairs, rank-shaped fitness and Adam. Knows nothing
of compilers: the caller measures fitness.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.adam import Adam, Vector

#: Fitness (higher is better) of each candidate, all on the same tasks.
Evaluate = Callable[[Sequence[Vector]], Vector]
#: The nearest admissible weights.
Project = Callable[[Vector], Vector]


@dataclass(frozen=True)
class Settings:
    """The parameters of a run.

    Attributes:
      pairs: antithetic pairs a generation; candidates are twice as many.
      sigma: standard deviation of the perturbations, in units of a weight.
      learning_rate: Adam's step, in units of a weight.
      seed: of the perturbations.
    """

    pairs: int
    sigma: float
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class State:
    """The state of a run; with Settings, all that the next generation depends on.

    Attributes:
      mean: the weights that the perturbations are added to, float64 [size].
      adam: moments of the gradient; its steps are the generations done.
    """

    mean: Vector
    adam: Adam

    @classmethod
    def start(cls, mean: npt.NDArray[Any]) -> "State":
        """The state before the first generation."""
        return cls(mean.astype(np.float64), Adam.start(mean.size))

    @property
    def generation(self) -> int:
        """Number of finished generations."""
        return self.adam.steps


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


def update(
    state: State, noise: Vector, fitness: Vector, settings: Settings, project: Project
) -> State:
    """One generation's step.

    g = 1 / (2 n sigma) * sum_i (F(theta + sigma e_i) - F(theta - sigma e_i)) e_i   (n pairs)

    followed by an ascent step of Adam, and by `project`: if the mean left the range of admissible
    weights, its perturbed copies would all be clipped to the same weights.

    Args:
      noise: e, float64 [pairs, size].
      fitness: float64 [pairs, 2], of theta + sigma e and of theta - sigma e; -inf for a candidate
        that could not be measured at all.
    """
    shaped = centered_ranks(fitness)
    gradient = (shaped[:, 0] - shaped[:, 1]) @ noise / (2 * len(noise) * settings.sigma)
    adam, direction = state.adam.step(gradient)
    return State(project(state.mean + settings.learning_rate * direction), adam)


def generation(
    state: State, settings: Settings, evaluate: Evaluate, project: Project
) -> tuple[State, Vector, Vector]:
    """Measures one generation and steps.

    Perturbations are drawn from the seed and the generation's number alone, so that a run that
    continues from a stored state is the same as one that was never interrupted. Both signs of a
    pair see the same noise.

    Returns:
      The next state, the fitness of the candidates, float64 [pairs, 2], and the weights of the
      fittest, float64 [size].
    """
    random = np.random.default_rng(derive_seed(settings.seed, "generation", state.generation))
    noise = random.standard_normal((settings.pairs, state.mean.size))
    candidates = [state.mean + sign * settings.sigma * e for e in noise for sign in (1, -1)]
    fitness = np.asarray(evaluate(candidates), np.float64).reshape(settings.pairs, 2)
    state = update(state, noise, fitness, settings, project)
    return state, fitness, candidates[int(fitness.argmax())]
