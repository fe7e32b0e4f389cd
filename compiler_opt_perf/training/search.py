# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The search: evolution strategies on training modules, selection on validation modules."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.policies.network import WEIGHT_LIMIT, to_grid
from compiler_opt_perf.training import evolution_strategies
from compiler_opt_perf.training.checkpoint import Checkpoint
from compiler_opt_perf.training.errors import TrainingError
from compiler_opt_perf.training.evaluation import (
    Evaluator,
    MeasuredModule,
    Measurement,
    cheapest,
)
from compiler_opt_perf.training.run import Run

Weights = npt.NDArray[Any]


def evolve(run: Run, checkpoint: Checkpoint, evaluator: Evaluator) -> Checkpoint:
    """Runs evolution strategies until all generations are done or the time budget is used up.

    Raises:
      TrainingError: in a generation every candidate fails on every module.
    """
    config = run.config
    settings = evolution_strategies.Settings(
        pairs=config.pairs,
        sigma=config.sigma,
        learning_rate=config.learning_rate,
        tasks_per_generation=config.modules_per_generation,
        seed=config.seed,
    )
    training = run.split.training
    shares = [run.large.get(one.module.name, 1.0) for one in training]
    while not run.is_over(checkpoint):
        number = checkpoint.state.generation + 1
        label = f"{run.problem.name}: generation {number} of {config.generations}"
        compilations, start = evaluator.compilations, time.monotonic()
        measured: list[Measurement] = []

        def fitness_of(
            candidates: Sequence[Weights],
            modules: Sequence[MeasuredModule],
            label: str = label,
            measured: list[Measurement] = measured,
        ) -> npt.NDArray[np.float64]:
            measured += evaluator.measure(candidates, modules, label)
            return np.array([-one.change for one in measured])

        state, _, fittest = evolution_strategies.generation(
            checkpoint.state, settings, fitness_of, training, shares, _within_limits
        )
        if all(one.failed_everywhere for one in measured):
            raise TrainingError(
                f"generation {number}: every candidate failed on every module; remove the "
                "cause that the warnings above tell, and run the same command to go on"
            )
        # The step is an average over few candidates; with a small budget the fittest of them is
        # often ahead of it.
        chosen_from = [state.mean, fittest]
        validated = evaluator.measure(chosen_from, run.split.validation)
        checkpoint = _with_best(
            dataclasses.replace(checkpoint, state=state), validated, chosen_from
        )
        changes = [one.change for one in measured]
        point = {
            "generation": number,
            "candidates_mean": float(np.mean(changes)),
            "candidates_best": min(changes),
            "candidates_failed": sum(bool(one.failed) for one in measured),
            "validation_of_mean": validated[0].change,
            "validation_of_fittest": validated[1].change,
        }
        checkpoint = run.save(checkpoint, evaluator, point)
        logging.info(
            "%s: candidates %+.3f%% (best %+.3f%%, %d failed), validation %s, fittest "
            "candidate %s (best so far %+.3f%% at %d), %.1f compilations/s, %.0f s left",
            label,
            100 * point["candidates_mean"],
            100 * point["candidates_best"],
            point["candidates_failed"],
            *validated,
            100 * checkpoint.record["best_change"],
            checkpoint.record["best_generation"],
            (evaluator.compilations - compilations) / (time.monotonic() - start),
            run.seconds_left(checkpoint),
        )
    return checkpoint


def _with_best(
    checkpoint: Checkpoint, measured: Sequence[Measurement], weights: Sequence[Weights]
) -> Checkpoint:
    """The checkpoint after a generation, with these weights if they cost less than its best."""
    chosen = cheapest(measured)
    if chosen is None or measured[chosen].change >= checkpoint.record["best_change"]:
        return checkpoint
    better = {
        "best_change": measured[chosen].change,
        "best_generation": checkpoint.state.generation,
    }
    return dataclasses.replace(
        checkpoint, best=to_grid(weights[chosen]), record={**checkpoint.record, **better}
    )


def _within_limits(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.clip(weights, -WEIGHT_LIMIT, WEIGHT_LIMIT)
