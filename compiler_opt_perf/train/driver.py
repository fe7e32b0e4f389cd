# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loop of a training: stage after stage on training modules, selection on validation modules.

A Training has what does not change; a Checkpoint has the state after an iteration.
"""

import dataclasses
import itertools
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy.encoding import scored_features
from compiler_opt_perf.policy.export import Policy
from compiler_opt_perf.policy.network import Network, to_grid
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.policy.tflite import write_model
from compiler_opt_perf.run.curve import write_curve
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.progress import pace
from compiler_opt_perf.train.algorithm import Algorithm, Step, require_like
from compiler_opt_perf.train.checkpoint import Checkpoint, CheckpointError
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.config import ALGORITHMS, Config
from compiler_opt_perf.train.env import TrainingEnv
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.folder import TrainingFolder
from compiler_opt_perf.train.linked import (
    LinkedResults,
    limited_change,
    link_programs,
    mean_change,
)
from compiler_opt_perf.train.measure import CandidateMeasurer, Measurement, cheapest
from compiler_opt_perf.train.split import Split


@dataclass(frozen=True)
class Clock:
    """Seconds spent on a training, those before interruptions included.

    Attributes:
      start: when this process began, in seconds of time.monotonic.
      before: seconds that earlier processes spent.
    """

    start: float
    before: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent so far."""
        return self.before + time.monotonic() - self.start


@dataclass(frozen=True)
class Training:
    """The fixed inputs of a training.

    Attributes:
      compiler: with the problem, the profile and the reward.
      folder: the training's folder.
      config: settings.
      pool: workers that compile.
      calls: how often functions were called, by program and name; weights of their scores.
      copies: by program, in how many of its objects a function is; for rewards that count copies.
      linked: the modules of each program that can be linked; empty if none is.
      linker: ld.lld.
      split: the usable modules.
      left_out: why each other module is not among them, by name.
      large: by name of the modules with more than `max_decisions`, the share of the iterations
        drawing them in which they take part.
      clock: measures the time budget.
      warm_start: the policy to begin with; None: an untrained one.
    """

    compiler: Compiler
    folder: TrainingFolder
    config: Config
    pool: Executor
    calls: Mapping[str, Mapping[str, float]]
    copies: Mapping[str, Mapping[str, int]]
    linked: Mapping[str, tuple[Module, ...]]
    linker: Path
    split: Split
    left_out: Mapping[str, str]
    large: Mapping[str, float]
    clock: Clock
    warm_start: Policy | None = None

    @property
    def problem(self) -> Problem:
        """The problem that policies decide."""
        return self.compiler.problem

    @property
    def with_pmu(self) -> bool:
        """Policies read the PMU features."""
        return self.compiler.profiles.are_read

    def network(self, checkpoint: Checkpoint) -> Network:
        """The network of the checkpoint's best policy."""
        assert self.config.hidden is not None
        return checkpoint.network(self.problem, self.with_pmu, self.config.hidden)

    def measurer(self, checkpoint: Checkpoint | None = None) -> CandidateMeasurer:
        """A measurer that continues a checkpoint's counts, or begins at 0."""
        shares = {
            program: {name: 1.0 / count for name, count in own.items()}
            for program, own in self.copies.items()
        }
        weights = shares if self.compiler.copies else self.calls
        measurer = CandidateMeasurer(self.compiler, self.pool, self.folder.failures, weights)
        if checkpoint is not None:
            measurer.compilations = checkpoint.record["compilations"]
            measurer.failures = checkpoint.record["failures"]
        return measurer

    def algorithm(
        self, number: int, network: Network, measurer: CandidateMeasurer
    ) -> Algorithm[Any]:
        """The algorithm of a stage, the first is 0, which goes on from policies of the network."""
        settings, margin = self.config.stages[number], self.config.margin
        assert margin is not None
        env = TrainingEnv(
            name=f"{self.problem.name}: {settings.algorithm}",
            network=network,
            margin=margin,
            measurer=measurer,
            training=self.split.training,
            validation=self.split.validation,
            large=self.large,
            copies=self.copies,
            labels=self.folder.labels,
            seed_of_training=self.config.seed,
            stage=number,
            before=sum(stage.iterations for stage in self.config.stages[:number]),
            rows=self.config.rows,
        )
        return ALGORITHMS[type(settings)](settings, env)

    def load_checkpoint(self) -> Checkpoint | None:
        """The state to go on from, if there is one. Raises CheckpointError, TrainingError."""
        path = self.folder.checkpoint
        if not path.exists():
            return None
        checkpoint = Checkpoint.load(path)
        features = len(scored_features(self.problem, self.with_pmu))
        try:
            if checkpoint.normalisation.center.size != features:
                raise ValueError("of other features")
            network = self.network(checkpoint)
            if checkpoint.best.size != network.size or checkpoint.stage >= len(self.config.stages):
                raise ValueError("of another network")
            if checkpoint.iteration:
                algorithm = self.algorithm(checkpoint.stage, network, self.measurer())
                require_like(checkpoint.state, algorithm.start(checkpoint.best))
        except ValueError as error:
            raise CheckpointError(
                f"{path}: damaged ({error}); remove it to start the training again"
            ) from error
        if checkpoint.record["modules"] != self.split.names:
            raise TrainingError(
                f"{self.folder.path}: other modules can be used now than when this training "
                "began; remove the cause that the warnings above tell, or the folder to start again"
            )
        return checkpoint

    def save(
        self, checkpoint: Checkpoint, measurer: CandidateMeasurer, point: Mapping[str, Any]
    ) -> Checkpoint:
        """Stores the state with the curve's next point; returns it. Raises FileWriteError."""
        general = {
            "stage": checkpoint.stage,
            "compilations": measurer.compilations,
            "elapsed_s": self.clock.seconds,
        }
        curve = [*checkpoint.record["curve"], {**point, **general}]
        counts = {"compilations": measurer.compilations, "failures": measurer.failures}
        record = {**checkpoint.record, **counts, "curve": curve}
        # A training that had ended goes on.
        record.pop("ended", None)
        checkpoint = dataclasses.replace(checkpoint, record=record)
        checkpoint.save(self.folder.checkpoint)
        write_curve(self.folder.curve, curve)
        return checkpoint

    def is_over(self, checkpoint: Checkpoint) -> bool:
        """Whether all iterations are done, or another one does not fit into a budget."""
        stages = self.config.stages
        left = sum(stage.iterations for stage in stages[checkpoint.stage + 1 :])
        done = checkpoint.iteration >= stages[checkpoint.stage].iterations and not left
        return done or self.is_out_of_budget(checkpoint)

    def is_out_of_budget(self, checkpoint: Checkpoint) -> bool:
        """Whether another iteration does not fit into a budget.

        A budget that ended the training once is used up, however fast the next run might be.
        """
        budget, most = self.config.budget_s, self.config.compilations
        curve = checkpoint.record["curve"]
        used, last = curve[-1], curve[-2:][0]
        # The next one is of the same stage, and its first iteration tells nothing of others'.
        same = used is not last and used["stage"] == checkpoint.stage
        next_one = used["compilations"] - last["compilations"] if same else 0
        if most and used["compilations"] + max(next_one, 1) > most:
            logging.info("%d of %d compilations used up", used["compilations"], most)
            return True
        if not budget:
            return False
        ended = checkpoint.record.get("ended")
        if ended is not None and budget <= ended["budget_s"]:
            return True
        if self.clock.seconds + seconds_per_generation(checkpoint) <= budget:
            return False
        logging.info(
            "time budget of %g s used up after %d iterations", budget, checkpoint.generation
        )
        return True

    def seconds_left(self, checkpoint: Checkpoint) -> float:
        """Estimated seconds until the last iteration, or until the end of the budget."""
        stages = self.config.stages[checkpoint.stage :]
        iterations = sum(stage.iterations for stage in stages) - checkpoint.iteration
        left = iterations * seconds_per_generation(checkpoint)
        if self.config.budget_s:
            left = min(left, max(self.config.budget_s - self.clock.seconds, 0.0))
        return left


def seconds_per_generation(checkpoint: Checkpoint) -> float:
    """The mean so far; 0 before the first."""
    curve = checkpoint.record["curve"]
    seconds: float = curve[-1]["elapsed_s"] - curve[0]["elapsed_s"]
    return seconds / max(len(curve) - 1, 1)


def search(run: Training, checkpoint: Checkpoint, measurer: CandidateMeasurer) -> Checkpoint:
    """Runs the stages until all iterations are done or a budget is used up.

    Each stage begins with the best policy so far.

    Raises:
      TrainingError: the compiler fails on every module of an iteration, or with each policy that a
        stage led to.
    """
    for number, stage in enumerate(run.config.stages):
        if number < checkpoint.stage:
            continue
        algorithm = run.algorithm(number, run.network(checkpoint), measurer)
        if number > checkpoint.stage or checkpoint.iteration == 0:
            record = {**checkpoint.record, "stage": number, "iteration": 0}
            initial = algorithm.start(checkpoint.best)
            checkpoint = dataclasses.replace(checkpoint, state=initial, record=record)
        while checkpoint.iteration < stage.iterations:
            if run.is_out_of_budget(checkpoint):
                return _sound(run, checkpoint)
            start, before = time.monotonic(), measurer.compilations
            step = algorithm.iterate(checkpoint.state, checkpoint.iteration + 1)
            policies = [(one.network, one.weights) for one in step.proposals]
            measured = validated(run, measurer, policies)
            step = dataclasses.replace(step, state=algorithm.validated(step.state, measured))
            checkpoint = _next(run, checkpoint, measurer, step, measured)
            _report(run, checkpoint, measurer.compilations - before, time.monotonic() - start)
        _sound(run, checkpoint)
    return checkpoint


def validated(
    run: Training,
    measurer: CandidateMeasurer,
    policies: Sequence[tuple[Network, npt.NDArray[Any]]],
    label: str | None = None,
    *,
    on_grid: bool = True,
) -> list[Measurement]:
    """Measures policies on the validation modules, or on the linked validation programs.

    Args: as of `CandidateMeasurer.measure`, but each policy comes with its network.
    """
    if run.config.links_validation:
        own = [(network, to_grid(one) if on_grid else one) for network, one in policies]
        return _validated_linked(run, measurer, own, label or f"{run.problem.name}: validation")
    measured: list[Measurement] = []
    modules = run.split.validation
    # All policies of one network at once.
    for _, group in itertools.groupby(policies, key=lambda one: id(one[0])):
        networks, weights = zip(*group, strict=True)
        measured += measurer.measure(networks[0], weights, modules, label, on_grid=on_grid)
    return measured


def _validated_linked(
    run: Training,
    measurer: CandidateMeasurer,
    policies: Sequence[tuple[Network, npt.NDArray[Any]]],
    label: str,
) -> list[Measurement]:
    """Measures policies on the linked validation programs.

    Parts flatter: who inlines a copy of a function is credited, even if other objects keep theirs.
    """
    assert run.config.programs is not None
    names = run.config.programs.validation
    found = link(run, policies, names, label)
    # Once by the compiler's own policy, too.
    measurer.compilations += (1 + len(policies)) * sum(len(run.linked[name]) for name in names)
    measured = []
    for number, (results, failed) in enumerate(found, 1):
        change = limited_change(results, run.config.largest_growth)
        measured.append(Measurement(change, failed, len(names)))
        if results:
            worst = max(results, key=lambda one: one.growth)
            logging.info(
                "%s: policy %d of %d: mean %+.3f%%, worst %s by %+.3f%%",
                *(label, number, len(found), 100 * mean_change([one.change for one in results])),
                *(worst.name, 100 * worst.growth),
            )
    return measured


def link(
    run: Training,
    policies: Sequence[tuple[Network, npt.NDArray[Any]]],
    names: Sequence[str],
    label: str,
) -> list[LinkedResults]:
    """Links programs with the compiler's own policy and with others; as `link_programs`."""
    with tempfile.TemporaryDirectory(prefix="policies-") as folder:
        models = []
        for number, (network, weights) in enumerate(policies):
            models.append(Path(folder) / str(number))
            models[-1].mkdir()
            write_model(models[-1], network, weights)
        programs = {name: run.linked[name] for name in names}
        return link_programs(run.compiler, programs, models, run.linker, run.pool, label)


def _next(
    run: Training,
    checkpoint: Checkpoint,
    measurer: CandidateMeasurer,
    step: Step,
    measured: list[Measurement],
) -> Checkpoint:
    """The checkpoint after an iteration, stored; its best policy is the cheapest so far."""
    generation = checkpoint.generation + 1
    record = {**checkpoint.record, "iteration": checkpoint.iteration + 1}
    checkpoint = dataclasses.replace(checkpoint, state=step.state, record=record)
    chosen, best = cheapest(measured), checkpoint.record["best_change"]
    if chosen is not None and (best is None or measured[chosen].change < best):
        change, proposal = measured[chosen].change, step.proposals[chosen]
        facts = {"best_change": change, "best_generation": generation}
        if best is None:
            facts["start_change"] = change
        checkpoint = checkpoint.with_best(proposal.network, proposal.weights, **facts)
    point = {
        "generation": generation,
        **step.facts,
        "validation_of_mean": measured[0].change,
    }
    if len(measured) > 1:
        # The other policies; with evolution strategies, the fittest of the candidates.
        point["validation_of_fittest"] = min(one.change for one in measured[1:])
    return run.save(checkpoint, measurer, point)


def _report(run: Training, checkpoint: Checkpoint, compilations: int, seconds: float) -> None:
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


def _sound(run: Training, checkpoint: Checkpoint) -> Checkpoint:
    """Raises TrainingError if no policy so far compiles all validation modules."""
    if checkpoint.record["best_change"] is None:
        raise TrainingError(
            f"{run.problem.name}: every policy so far fails on a validation module, or none was "
            "trained: none can be published; remove the cause that the warnings above tell (with a "
            "time limit: raise timeout_s), or take these modules out of the corpus"
        )
    return checkpoint
