# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The search: stage after stage on training modules, selection on validation modules."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.run.progress import pace
from compiler_opt_perf.train.algorithm import Step, require_like
from compiler_opt_perf.train.checkpoint import Checkpoint, CheckpointError
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.evaluation import Evaluator, Measurement, cheapest
from compiler_opt_perf.train.run import Run
from compiler_opt_perf.train.stages import Setting, algorithm_of


def search(run: Run, checkpoint: Checkpoint, evaluator: Evaluator) -> Checkpoint:
    """Runs the stages until all iterations are done or a budget is used up.

    Each stage begins with the best policy so far.

    Raises:
      TrainingError: the compiler fails on every module of an iteration, or with each policy that a
        stage led to.
    """
    network = run.network(checkpoint.normalisation)
    for number, stage in enumerate(run.config.stages):
        if number < checkpoint.stage:
            continue
        algorithm = algorithm_of(Setting(run, network, evaluator, number))
        initial = algorithm.start(checkpoint.best)
        if number > checkpoint.stage or checkpoint.iteration == 0:
            position = {"stage": number, "iteration": 0}
            record = {**checkpoint.record, **position}
            checkpoint = dataclasses.replace(checkpoint, state=initial, record=record)
        while checkpoint.iteration < stage.iterations:
            if run.is_out_of_budget(checkpoint):
                return _sound(run, checkpoint)
            start, before = time.monotonic(), evaluator.compilations
            step = algorithm.iterate(checkpoint.state, checkpoint.iteration + 1)
            checkpoint = _validated(run, checkpoint, evaluator, step)
            _report(run, checkpoint, evaluator.compilations - before, time.monotonic() - start)
        _sound(run, checkpoint)
    return checkpoint


def require_state(run: Run, checkpoint: Checkpoint) -> None:
    """Raises CheckpointError if the checkpoint has the state of another algorithm."""
    if checkpoint.iteration == 0:
        return
    network = run.network(checkpoint.normalisation)
    # Nothing is measured.
    setting = Setting(run, network, cast(Any, None), checkpoint.stage)
    try:
        require_like(checkpoint.state, algorithm_of(setting).start(checkpoint.best))
    except ValueError as error:
        raise CheckpointError(
            f"{run.folder.checkpoint}: damaged ({error}); remove it to start the training again"
        ) from error


def _validated(run: Run, checkpoint: Checkpoint, evaluator: Evaluator, step: Step) -> Checkpoint:
    """The checkpoint after an iteration, stored."""
    measured = evaluator.measure(step.policies, run.split.validation)
    generation = checkpoint.generation + 1
    record = {**checkpoint.record, "iteration": checkpoint.iteration + 1}
    checkpoint = dataclasses.replace(checkpoint, state=step.state, record=record)
    checkpoint = _with_best(checkpoint, measured, step.policies, generation)
    point = {
        "generation": generation,
        **step.facts,
        "validation_of_mean": measured[0].change,
    }
    if len(measured) > 1:
        # Of further policies: with evolution strategies the fittest of the candidates.
        point["validation_of_fittest"] = min(one.change for one in measured[1:])
    return run.save(checkpoint, evaluator, point)


def _with_best(
    checkpoint: Checkpoint,
    measured: Sequence[Measurement],
    weights: Sequence[npt.NDArray[Any]],
    generation: int,
) -> Checkpoint:
    """The checkpoint with the cheapest of these weights if they cost less than its best."""
    chosen = cheapest(measured)
    best = checkpoint.record["best_change"]
    if chosen is None or (best is not None and measured[chosen].change >= best):
        return checkpoint
    change = measured[chosen].change
    better = {"best_change": change, "best_generation": generation}
    if best is None:
        better["start_change"] = change
    return dataclasses.replace(
        checkpoint,
        best=np.asarray(weights[chosen], np.float32),
        record={**checkpoint.record, **better},
    )


def _report(run: Run, checkpoint: Checkpoint, compilations: int, seconds: float) -> None:
    """An iteration, in the log."""
    stage, point = run.config.stages[checkpoint.stage], checkpoint.record["curve"][-1]
    general = {"generation", "elapsed_s", "stage", "compilations"}
    facts = [f"{name} {value:.5g}" for name, value in point.items() if name not in general]
    best = checkpoint.record["best_change"]
    logging.info(
        "%s: %s %d of %d: %s; best so far %s, %d compilations, %s, %.0f s left",
        run.problem.name,
        *(stage.algorithm, checkpoint.iteration, stage.iterations),
        ", ".join(facts),
        "none" if best is None else f"{100 * best:+.3f}% at {checkpoint.record['best_generation']}",
        *(compilations, pace(compilations, seconds), run.seconds_left(checkpoint)),
    )


def _sound(run: Run, checkpoint: Checkpoint) -> Checkpoint:
    """Raises TrainingError if no policy so far compiles all validation modules."""
    if checkpoint.record["best_change"] is None:
        raise TrainingError(
            f"{run.problem.name}: every policy so far fails on a validation module, or none was "
            "trained: none can be published; remove the cause that the warnings above tell (with a "
            "time limit: raise timeout_s), or take these modules out of the corpus"
        )
    return checkpoint
