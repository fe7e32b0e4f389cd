# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
from collections.abc import Sequence

import numpy as np

from compiler_opt_perf.policy.network import WEIGHT_LIMIT, to_grid
from compiler_opt_perf.train.adam import Adam, Vector
from compiler_opt_perf.train.evolution_strategies import (
    Settings,
    State,
    centered_ranks,
    generation,
    update,
)

SETTINGS = Settings(pairs=8, sigma=0.05, learning_rate=0.05, seed=1)
TASKS = [np.random.default_rng(i).normal(size=20) for i in range(6)]


def anywhere(weights: Vector) -> Vector:
    return weights


def evaluate(candidates: Sequence[Vector]) -> Vector:
    """Minus the mean squared distance to the tasks' targets: best at the targets' mean."""
    return np.array([-np.mean([(c - t) @ (c - t) for t in TASKS]) for c in candidates])


def test_climbs_to_the_optimum_of_noisy_tasks() -> None:
    settings = dataclasses.replace(SETTINGS, learning_rate=0.02)
    state = State.start(np.zeros(20))
    for _ in range(300):
        state, _, _ = generation(state, settings, evaluate, anywhere)
    best = np.mean(TASKS, axis=0)
    assert np.linalg.norm(state.mean - best) < 0.25 * np.linalg.norm(best)


def test_update_is_the_equation() -> None:
    settings = dataclasses.replace(SETTINGS, pairs=2)
    noise = np.array([[1.0, 0.0], [0.0, 2.0]])
    fitness = np.array([[3.0, 1.0], [0.0, 2.0]])
    state = update(State.start(np.zeros(2)), noise, fitness, settings, anywhere)
    shaped = np.array([[0.5, -1 / 6], [-0.5, 1 / 6]])
    gradient = (shaped[:, 0] - shaped[:, 1]) @ noise / (4 * settings.sigma)
    np.testing.assert_allclose(state.adam.first_moment, 0.1 * gradient)
    # Adam's first step has the learning rate's length in each direction.
    np.testing.assert_allclose(state.mean, settings.learning_rate * np.sign(gradient), rtol=1e-6)


def test_ranks_share_ties_and_take_failures_as_worst() -> None:
    ranks = centered_ranks(np.array([[5.0, -np.inf], [1.0, 5.0]]))
    np.testing.assert_allclose(ranks, [[1 / 3, -0.5], [-1 / 6, 1 / 3]])
    np.testing.assert_array_equal(centered_ranks(np.zeros((2, 2))), np.zeros((2, 2)))


def test_equal_fitness_leaves_the_weights() -> None:
    state, _, _ = generation(
        State.start(np.ones(5)), SETTINGS, lambda c: np.zeros(len(c)), anywhere
    )
    np.testing.assert_array_equal(state.mean, np.ones(5))


def test_a_resumed_run_equals_an_uninterrupted_one() -> None:
    whole = State.start(np.zeros(20))
    for _ in range(6):
        whole, _, _ = generation(whole, SETTINGS, evaluate, anywhere)
    part = State.start(np.zeros(20))
    for _ in range(3):
        part, _, _ = generation(part, SETTINGS, evaluate, anywhere)
    adam = Adam(part.adam.steps, part.adam.first_moment.copy(), part.adam.second_moment.copy())
    part = State(part.mean.copy(), adam)
    for _ in range(3):
        part, _, _ = generation(part, SETTINGS, evaluate, anywhere)
    np.testing.assert_array_equal(part.mean, whole.mean)
    np.testing.assert_array_equal(part.adam.second_moment, whole.adam.second_moment)


def test_candidates_are_antithetic() -> None:
    seen: list[list[Vector]] = []

    def record(candidates: Sequence[Vector]) -> Vector:
        seen.append(list(candidates))
        return np.arange(len(candidates), dtype=np.float64)

    mean = np.full(20, 0.5)
    generation(State.start(mean), SETTINGS, record, anywhere)
    (candidates,) = seen
    assert len(candidates) == 16
    for plus, minus in zip(candidates[::2], candidates[1::2], strict=True):
        np.testing.assert_allclose(plus + minus, 2 * mean)


def test_the_fittest_candidate_is_returned() -> None:
    seen: list[Vector] = []

    def evaluate(candidates: Sequence[Vector]) -> Vector:
        seen.extend(candidates)
        return np.array([-np.sum((candidate - 2.0) ** 2) for candidate in candidates])

    _, fitness, fittest = generation(State.start(np.ones(5)), SETTINGS, evaluate, anywhere)
    assert -np.sum((fittest - 2.0) ** 2) == fitness.max()
    assert any(np.array_equal(fittest, candidate) for candidate in seen)


def test_the_mean_stays_among_the_admissible_weights() -> None:
    """With a weight near the limit, candidates stay apart after many generations."""
    settings = dataclasses.replace(SETTINGS, sigma=0.06, learning_rate=0.015)
    state = State.start(np.full(1, 0.99))
    seen: list[Vector] = []

    def climb(candidates: Sequence[Vector]) -> Vector:
        seen[:] = [to_grid(candidate).astype(np.float64) for candidate in candidates]
        return np.array([limited.sum() for limited in seen])

    for _ in range(100):
        state, _, _ = generation(state, settings, climb, limited)
    assert np.abs(state.mean).max() <= WEIGHT_LIMIT
    assert len({candidate.tobytes() for candidate in seen}) > len(seen) / 4


def limited(weights: Vector) -> Vector:
    return np.clip(weights, -WEIGHT_LIMIT, WEIGHT_LIMIT)
