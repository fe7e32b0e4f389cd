# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One run of a training: its fixed inputs, its state on disk, its clock."""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from absl import logging

from compiler_opt_perf.policy.export import CandidateTemplate, Policy
from compiler_opt_perf.policy.network import Network, Normalisation, scored_features
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.curve import write_curve
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.train.checkpoint import Checkpoint, CheckpointError
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.config import Config
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.evaluation import Evaluator
from compiler_opt_perf.train.folder import TrainingFolder
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
class Run:
    """What does not change during a run.

    Attributes:
      compiler: with the problem, the profile and the reward.
      folder: the training's folder.
      config: settings.
      pool: workers that compile.
      calls: how often functions were called, by program and name; weights of their scores.
      split: the usable modules.
      left_out: why each other module is not among them, by name.
      large: by name of the modules with more than `max_decisions`, the share of the iterations
        drawing them in which they take part.
      clock: of the time budget.
      warm_start: the policy to begin with; None: an untrained one.
    """

    compiler: Compiler
    folder: TrainingFolder
    config: Config
    pool: Executor
    calls: Mapping[str, Mapping[str, float]]
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

    def network(self, normalisation: Normalisation) -> Network:
        """The network that is trained."""
        hidden, lead = self.config.hidden, self.config.default_lead
        assert hidden is not None and lead is not None
        return Network(self.problem, self.with_pmu, hidden, normalisation, lead)

    def evaluator(self, checkpoint: Checkpoint) -> Evaluator:
        """An evaluator for the checkpoint's network, which continues its counts."""
        evaluator = self.fresh_evaluator(self.network(checkpoint.normalisation))
        evaluator.compilations = checkpoint.record["compilations"]
        evaluator.failures = checkpoint.record["failures"]
        return evaluator

    def fresh_evaluator(self, network: Network) -> Evaluator:
        """An evaluator for the network, with counts of 0."""
        template = CandidateTemplate.make(network)
        return Evaluator(self.compiler, template, self.pool, self.folder.failures, self.calls)

    def load_checkpoint(self) -> Checkpoint | None:
        """The state to go on from, if there is one. Raises CheckpointError, TrainingError."""
        path = self.folder.checkpoint
        if not path.exists():
            return None
        checkpoint = Checkpoint.load(path)
        normalisation = checkpoint.normalisation
        if (
            normalisation.center.size != len(scored_features(self.problem, self.with_pmu))
            or checkpoint.best.size != self.network(normalisation).size
            or checkpoint.stage >= len(self.config.stages)
        ):
            raise CheckpointError(
                f"{path}: damaged (of another network); remove it to start the training again"
            )
        if checkpoint.record["modules"] != self.split.names:
            raise TrainingError(
                f"{self.folder.path}: other modules can be used now than when this training "
                "began; remove the cause that the warnings above tell, or the folder to start again"
            )
        return checkpoint

    def save(
        self, checkpoint: Checkpoint, evaluator: Evaluator, point: Mapping[str, Any]
    ) -> Checkpoint:
        """Stores the state with the curve's next point; returns it. Raises FileWriteError."""
        general = {
            "stage": checkpoint.stage,
            "compilations": evaluator.compilations,
            "elapsed_s": self.clock.seconds,
        }
        curve = [*checkpoint.record["curve"], {**point, **general}]
        counts = {"compilations": evaluator.compilations, "failures": evaluator.failures}
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
