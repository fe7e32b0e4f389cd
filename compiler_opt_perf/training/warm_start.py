# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The warm start: imitates the compiler's own decisions, several times, and takes the cheapest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.execution.seeds import derive_seed
from compiler_opt_perf.policies.network import (
    FloatArray,
    IntArray,
    Network,
    fit_normalisation,
    to_grid,
)
from compiler_opt_perf.training import behavioural_cloning
from compiler_opt_perf.training.checkpoint import Checkpoint
from compiler_opt_perf.training.errors import TrainingError
from compiler_opt_perf.training.evaluation import Evaluator, MeasuredModule, cheapest
from compiler_opt_perf.training.evolution_strategies import State
from compiler_opt_perf.training.log import read_log
from compiler_opt_perf.training.run import Run


def begin(run: Run) -> tuple[Checkpoint, Evaluator]:
    """Trains several imitations and begins with the one that costs least on validation modules.

    The costs of imitations that are nearly equal can differ by several per cent.

    Returns:
      The first state, and the evaluator that measured it.

    Raises:
      TrainingError: each imitation fails on some validation module.
    """
    network, warm_starts = _warm_starts(run)
    evaluator = run.fresh_evaluator(network)
    validation = run.split.validation
    measured = evaluator.measure(warm_starts, validation, f"{run.problem.name}: warm starts")
    chosen = cheapest(measured)
    if chosen is None:
        failing = sorted({name for one in measured for name in one.failed})
        raise TrainingError(
            f"every warm start fails on a validation module ({', '.join(failing)}): none can "
            "be published; remove the cause that the warnings above tell (with a time limit: "
            "raise timeout_s), or take these modules out of the corpus"
        )
    weights, change = warm_starts[chosen], measured[chosen].change
    accuracy = behavioural_cloning.accuracy(network, weights, *default_decisions(run, validation))
    others = [str(one) for i, one in enumerate(measured) if i != chosen]
    logging.info(
        "warm start %d: %s on the validation modules (others %s); equals the compiler in "
        "%.1f%% of %d decisions there (%.1f%% where it acts, %.1f%% where not)",
        chosen,
        measured[chosen],
        ", ".join(others) or "none",
        100 * accuracy.overall,
        accuracy.rows,
        100 * accuracy.active,
        100 * accuracy.idle,
    )
    record = {
        "modules": run.split.names,
        "warm_start_change": change,
        "warm_start_accuracy": accuracy.as_json(),
        "best_change": change,
        "best_generation": 0,
        "curve": [],
    }
    checkpoint = Checkpoint(
        State.start(weights), to_grid(weights), to_grid(weights), network.normalisation, record
    )
    point = {"generation": 0, "validation_of_mean": change}
    return run.save(checkpoint, evaluator, point), evaluator


def _warm_starts(run: Run) -> tuple[Network, list[FloatArray]]:
    """Imitates the compiler's decisions on the training modules, from several initial weights."""
    inputs, decisions = default_decisions(run, run.split.training)
    network = run.network(fit_normalisation(inputs, run.problem, run.with_pmu))
    warm_starts: list[FloatArray] = []
    for number in range(run.config.warm_starts):
        settings = behavioural_cloning.Settings(
            steps=run.config.warm_start_steps,
            batch_size=run.config.warm_start_batch,
            learning_rate=run.config.warm_start_learning_rate,
            label_smoothing=run.config.label_smoothing,
            seed=derive_seed(run.config.seed, "warm start", number),
        )
        warm_starts.append(behavioural_cloning.train(network, inputs, decisions, settings))
    logging.info(
        "%d warm starts: %d weights from %d decisions",
        len(warm_starts),
        network.size,
        len(decisions),
    )
    return network, warm_starts


def default_decisions(
    run: Run, modules: Sequence[MeasuredModule]
) -> tuple[dict[str, npt.NDArray[Any]], IntArray]:
    """Features and decisions of the modules' logs, at most `warm_start_rows` of them.

    One log at a time is in memory, beside the rows drawn so far.
    """
    counts = [measured.default.decisions for measured in modules]
    drawn = np.arange(sum(counts))
    if len(drawn) > run.config.warm_start_rows:
        random = np.random.default_rng(derive_seed(run.config.seed, "rows"))
        drawn = np.sort(random.choice(drawn, run.config.warm_start_rows, replace=False))
    parts = []
    first = 0
    for measured, count in zip(modules, counts, strict=True):
        own = drawn[(drawn >= first) & (drawn < first + count)] - first
        first += count
        if own.size:
            log = read_log(measured.log).select(own)
            has_profile = run.compiler.profiles.of(measured.module.program) is not None
            inputs = log.inputs(run.problem, has_profile)
            if run.with_pmu and not has_profile:
                inputs |= log.missing_inputs(run.problem)
            parts.append((inputs, log.default_decisions(run.problem)))
    joined = {name: np.concatenate([inputs[name] for inputs, _ in parts]) for name in parts[0][0]}
    return joined, np.concatenate([decisions for _, decisions in parts])
