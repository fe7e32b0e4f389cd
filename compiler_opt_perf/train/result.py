# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The end of a training: the test of what was chosen, and its publication.

Nothing that is published depends on time, on the number of workers or on interruptions.
"""

import contextlib
import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.export import ModelError, Policy
from compiler_opt_perf.policy.network import to_grid
from compiler_opt_perf.run.curve import curve_text, write_curve
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.config import Config
from compiler_opt_perf.train.driver import Training, link, validated
from compiler_opt_perf.train.env import default_decisions
from compiler_opt_perf.train.linked import ProgramResult, mean_change
from compiler_opt_perf.train.measure import CandidateMeasurer

#: What stages use besides.
# Trees learn from some thousand labels (`train.cost_sensitive`).
_ENOUGH_LABELS = 2000
WORSE = "worse than the default: do not ship"


def verdict(change: float, failed: Collection[str]) -> str:
    """A policy's change against the default and what the compiler fails on, in a few words."""
    if change > 0 or failed:
        return WORSE
    return "better than the default" if change < 0 else "as good as the default"


@dataclass(frozen=True)
class TrainingResult:
    """The result. Changes are against the default's cost, -0.01 for 1% less.

    Attributes:
      policy: directory of the published policy.
      reward: name of what was made smaller.
      test_change: change with the published policy on the test modules.
      test_failed: names of the test modules, or of the programs, on which the compiler failed.
      validation_change: change with it on the validation modules; optimistic, since the policy
        was chosen by them.
      start_change: change there with the policy that the training began with; if that one
        decided at random, with the first policy that was trained.
      generations: iterations done, of all stages.
      programs: the linked test programs, for trainings that count copies.
    """

    policy: Path
    reward: str
    test_change: float
    test_failed: tuple[str, ...]
    validation_change: float
    start_change: float
    generations: int
    programs: tuple[ProgramResult, ...] = ()

    @property
    def is_worse(self) -> bool:
        """Whether the policy costs more than the default, or fails on a module."""
        return self.verdict == WORSE

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        return verdict(self.test_change, self.test_failed)


def remarks(run: Training, checkpoint: Checkpoint) -> list[str]:
    """Why a policy is not better than the default, and what to do next, as far as that is known.

    They are said, and are no part of what is published.
    """
    result, record = result_of(run, checkpoint), checkpoint.record
    if result.test_change < 0 and not result.is_worse:
        return []
    said = []
    curve = record["curve"]
    learnt = [point["labels"] for point in curve if "labels" in point]
    if learnt and learnt[-1] < _ENOUGH_LABELS:
        minutes = run.clock.seconds * _ENOUGH_LABELS / max(learnt[-1], 1) / 60
        said.append(
            f"it learnt from {learnt[-1]:,} labels in {run.clock.seconds:.0f} s, which are too "
            "few: models/inline-size learnt from 16,880 of many programs. Give more modules, or "
            "more labels of each by --setting=labels.sites=, and a larger --budget: "
            f"{_ENOUGH_LABELS:,} labels take about {max(minutes, 1):.0f} minutes here"
        )
    if not record["best_generation"] and checkpoint.generation:
        said.append(
            "no iteration led to a policy that is better on the validation modules than the one it "
            "began with, which is published"
        )
    planned = run.config.iterations
    if checkpoint.generation < planned:
        said.append(
            f"the budget ended it after {checkpoint.generation} of {planned} iterations; run the "
            "command again with a larger --budget to go on"
        )
    begun = run.warm_start is not None
    if not begun and run.problem.name == "inline-size" and not run.with_pmu:
        said.append(
            "--warm-start=inline-size, in another output folder, begins with a policy that "
            "is better than the default on most programs"
        )
    return said


def final_test(run: Training, checkpoint: Checkpoint, measurer: CandidateMeasurer) -> Checkpoint:
    """Measures the best weights on the test modules, or on the linked test programs.

    The compilations are not counted, so that a training that goes on after this equals one that
    never ended.
    """
    programs: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
    if run.compiler.copies:
        assert run.config.programs is not None
        weights, names = to_grid(checkpoint.best), run.config.programs.test
        ((found, failed),) = link(run, [(run.network(checkpoint), weights)], names, "test")
        change = mean_change([one.change for one in found])
        programs = {one.name: (one.linked, one.objects) for one in found}
    else:
        label, network = f"{run.problem.name}: test", run.network(checkpoint)
        (measured,) = measurer.measure(network, [checkpoint.best], run.split.test, label)
        change, failed = measured.change, measured.failed
    by_budget = checkpoint.generation < run.config.iterations
    ended = {
        "budget_s": run.config.budget_s if by_budget else 0.0,
        "compilations": measurer.compilations,
        "test_change": change,
        "test_failed": list(failed),
        "grid_loss": _grid_loss(run, checkpoint, measurer),
        "programs": programs,
    }
    checkpoint = dataclasses.replace(checkpoint, record={**checkpoint.record, "ended": ended})
    checkpoint.save(run.folder.checkpoint)
    return checkpoint


def _grid_loss(
    run: Training, checkpoint: Checkpoint, measurer: CandidateMeasurer
) -> dict[str, float]:
    """Measures the loss from rounding weights to the grid of `policy.network`.

    Returns:
      Changes on the validation modules with the weights as they were trained and as they are
      published, their difference, and the share of the default's decisions there that the two
      policies decide differently.
    """
    trained, published = checkpoint.best, to_grid(checkpoint.best)
    label, network = f"{run.problem.name}: validation, weights as trained", run.network(checkpoint)
    modules, config = run.split.validation, run.config
    policy = network, trained
    (as_trained,) = validated(run, measurer, [policy], label, on_grid=False)
    seed = derive_seed(config.seed, "rows")
    inputs, _ = default_decisions(run.compiler, modules, config.rows, seed)
    differing = network.decide(trained, inputs) != network.decide(published, inputs)
    change = checkpoint.record["best_change"]
    loss = {
        "validation_change_as_trained": as_trained.change,
        "validation_change": change,
        "loss": change - as_trained.change,
        "decisions_differing": float(differing.mean()),
    }
    logging.info(
        "%s: on the grid of the published weights %+.3f%% on the validation modules, as trained "
        "%+.3f%%: a loss of %+.4f%%; %.3f%% of %d decisions differ",
        run.problem.name,
        *(100 * change, 100 * as_trained.change, 100 * loss["loss"]),
        *(100 * loss["decisions_differing"], len(differing)),
    )
    return loss


def result_of(run: Training, checkpoint: Checkpoint) -> TrainingResult:
    """The result of an ended training."""
    record = checkpoint.record
    return TrainingResult(
        policy=run.folder.policy,
        reward=run.compiler.reward.name,
        test_change=record["ended"]["test_change"],
        test_failed=tuple(record["ended"]["test_failed"]),
        validation_change=record["best_change"],
        start_change=record["start_change"],
        generations=checkpoint.generation,
        programs=tuple(
            ProgramResult(name, tuple(linked), tuple(objects))
            for name, (linked, objects) in record["ended"].get("programs", {}).items()
        ),
    )


def publish(run: Training, checkpoint: Checkpoint) -> TrainingResult:
    """Writes policy and record of a training that has ended. Raises FileWriteError."""
    result = result_of(run, checkpoint)
    network = run.network(checkpoint)
    description = _description(run, checkpoint)
    logging.info(
        "%s: writing the policy",
        run.problem.name,
    )
    export.publish(Policy(network, checkpoint.best, description), result.policy)
    write_json(run.folder.result, _report(run, checkpoint))
    write_curve(run.folder.curve, checkpoint.record["curve"])
    logging.info(
        "%s: %d iterations, %d compilations (%d failed) in %.0f s: %+.3f%% on the test "
        "modules%s (%+.3f%% on those that it was chosen by, at the start %+.3f%% there), policy "
        "in %s: %s",
        run.problem.name,
        result.generations,
        checkpoint.record["compilations"],
        checkpoint.record["failures"],
        run.clock.seconds,
        100 * result.test_change,
        f", fails on {', '.join(result.test_failed)}" if result.test_failed else "",
        100 * result.validation_change,
        100 * result.start_change,
        result.policy,
        result.verdict,
    )
    for one in remarks(run, checkpoint):
        logging.info("%s: %s", run.problem.name, one)
    return result


def is_published(run: Training, checkpoint: Checkpoint) -> bool:
    """Whether policy, record and curve of an ended training are in place."""
    report = json.dumps(_report(run, checkpoint), indent=1) + "\n"
    try:
        policy = export.load(run.folder.policy)
        return (
            np.array_equal(policy.weights, to_grid(checkpoint.best))
            and policy.description == _description(run, checkpoint)
            and run.folder.result.read_text(encoding="utf-8") == report
            and run.folder.curve.read_text(encoding="utf-8")
            == curve_text(checkpoint.record["curve"])
        )
    except (ModelError, OSError, ValueError):
        return False


def _report(run: Training, checkpoint: Checkpoint) -> dict[str, Any]:
    """The content of training.json."""
    return {
        "problem": run.problem.name,
        **_description(run, checkpoint),
        "modules": run.split.names,
        "large": run.large,
        "left_out": run.left_out,
    }


def _description(run: Training, checkpoint: Checkpoint) -> dict[str, Any]:
    """The common part of model.json and training.json; nothing in it depends on time."""
    result, record = result_of(run, checkpoint), checkpoint.record
    return {
        "seed": run.config.seed,
        "results": {
            "reward": result.reward,
            "verdict": result.verdict,
            "test_change": result.test_change,
            "test_failed": list(result.test_failed),
            "validation_change": result.validation_change,
            "start_change": result.start_change,
            "grid": record["ended"]["grid_loss"],
            "best_generation": record["best_generation"],
            "compilations": record["compilations"],
            "failures": record["failures"],
            **_programs(result),
        },
        "training": {
            "generations": result.generations,
            "modules": {purpose: len(names) for purpose, names in run.split.names.items()},
            "config": run.config.fixed(),
            "ablation": run.compiler.profiles.ablation,
            "versions": versions(run.config),
        },
    }


def _programs(result: TrainingResult) -> dict[str, Any]:
    """The linked test programs, by name; nothing where there are none."""
    if not result.programs:
        return {}
    programs = {
        one.name: {"linked": list(one.linked), "objects": list(one.objects), "change": one.change}
        for one in result.programs
    }
    return {"programs": programs}


def versions(config: Config) -> dict[str, str]:
    """Versions of the packages that weights depend on: numpy, and those of the stages."""
    found = {}
    for name in dict.fromkeys(
        ["numpy", *(one for stage in config.stages for one in stage.packages)]
    ):
        # Without one of an extra, its stage says what to install.
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
