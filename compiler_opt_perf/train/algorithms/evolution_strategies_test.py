# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from compiler_opt_perf.policy.network import WEIGHT_LIMIT, to_grid
from compiler_opt_perf.train.algorithm import Arrays, Vector
from compiler_opt_perf.train.algorithms.evolution_strategies import (
    EvolutionStrategies,
    ask,
    centered_ranks,
    start,
    tell,
)

SETTINGS = EvolutionStrategies(pairs=8, sigma=0.05, learning_rate=0.05)
TASKS = [np.random.default_rng(i).normal(size=20) / 4 for i in range(6)]


def evaluate(candidates: Sequence[Vector]) -> Vector:
    """Minus the mean squared distance to the tasks' targets: best at the targets' mean."""
    return np.array([-np.mean([(c - t) @ (c - t) for t in TASKS]) for c in candidates])


def run(
    state: Arrays,
    generations: int,
    fitness: Callable[[Sequence[Vector]], Vector] = evaluate,
    settings: EvolutionStrategies = SETTINGS,
) -> Arrays:
    for _ in range(generations):
        noise, candidates = ask(state, settings, seed=1)
        state = tell(state, noise, fitness(candidates), settings)
    return state


def test_climbs_to_the_optimum_of_noisy_tasks() -> None:
    settings = msgspec.structs.replace(SETTINGS, learning_rate=0.005)
    state = run(start(np.zeros(20)), 300, settings=settings)
    best = np.mean(TASKS, axis=0)
    assert np.linalg.norm(state["weights"] - best) < 0.25 * np.linalg.norm(best)


def test_tell_is_the_equation() -> None:
    settings = msgspec.structs.replace(SETTINGS, pairs=2)
    noise = np.array([[1.0, 0.0], [0.0, 2.0]])
    fitness = np.array([3.0, 1.0, 0.0, 2.0])
    state = tell(start(np.zeros(2)), noise, fitness, settings)
    shaped = np.array([[0.5, -1 / 6], [-0.5, 1 / 6]])
    gradient = (shaped[:, 0] - shaped[:, 1]) @ noise / (4 * settings.sigma)
    np.testing.assert_allclose(state["first_moment"], 0.1 * gradient)
    # Adam's first step has the learning rate's length in each direction.
    step = settings.learning_rate * np.sign(gradient)
    np.testing.assert_allclose(state["weights"], step, rtol=1e-6)


def test_ranks_share_ties_and_take_failures_as_worst() -> None:
    ranks = centered_ranks(np.array([[5.0, -np.inf], [1.0, 5.0]]))
    np.testing.assert_allclose(ranks, [[1 / 3, -0.5], [-1 / 6, 1 / 3]])
    np.testing.assert_array_equal(centered_ranks(np.zeros((2, 2))), np.zeros((2, 2)))


def test_equal_fitness_leaves_the_weights() -> None:
    state = run(start(np.full(5, 0.5)), 1, lambda c: np.zeros(len(c)))
    np.testing.assert_array_equal(state["weights"], np.full(5, 0.5))


def test_a_resumed_run_equals_an_uninterrupted_one() -> None:
    whole = run(start(np.zeros(20)), 6)
    part = {name: array.copy() for name, array in run(start(np.zeros(20)), 3).items()}
    for name, array in run(part, 3).items():
        np.testing.assert_array_equal(array, whole[name], name)


def test_candidates_are_antithetic() -> None:
    mean = np.full(20, 0.5)
    noise, candidates = ask(start(mean), SETTINGS, seed=1)
    assert noise.shape == (8, 20) and len(candidates) == 16
    for e, plus, minus in zip(noise, candidates[::2], candidates[1::2], strict=True):
        np.testing.assert_allclose(plus + minus, 2 * mean)
        np.testing.assert_allclose(plus - minus, 2 * SETTINGS.sigma * e)


def test_the_mean_stays_among_the_admissible_weights() -> None:
    """With a weight near the limit, candidates stay apart after many generations."""
    settings = msgspec.structs.replace(SETTINGS, sigma=0.06, learning_rate=0.015)
    seen: list[Vector] = []

    def climb(candidates: Sequence[Vector]) -> Vector:
        seen[:] = [to_grid(candidate).astype(np.float64) for candidate in candidates]
        return np.array([limited.sum() for limited in seen])

    state = run(start(np.full(1, 0.99)), 100, climb, settings)
    assert np.abs(state["weights"]).max() <= WEIGHT_LIMIT
    assert len({candidate.tobytes() for candidate in seen}) > len(seen) / 4
