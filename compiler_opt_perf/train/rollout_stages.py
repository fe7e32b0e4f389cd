# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stages that learn from rollouts: PPO, and best-of-several imitation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.network import to_grid
from compiler_opt_perf.train import best_of_several, ppo
from compiler_opt_perf.train.algorithm import Arrays, Step
from compiler_opt_perf.train.config import BestOfSeveral, Ppo
from compiler_opt_perf.train.rollouts import RolloutJob, best_of, explore, joined
from compiler_opt_perf.train.stages import Setting


def _jobs(
    at: Setting, settings: Ppo | BestOfSeveral, model: Path, state: Arrays, number: int
) -> Sequence[RolloutJob]:
    """A job for each of an iteration's modules."""
    return [
        RolloutJob(
            at.run.compiler,
            one.module,
            model,
            at.network,
            to_grid(state["weights"]),
            settings.temperature,
            settings.rollouts if isinstance(settings, Ppo) else settings.explored,
            () if isinstance(settings, Ppo) else settings.thresholds,
            at.seed("rollout", number, one.module.name),
        )
        for one in at.draw(settings.modules, number)
    ]


@dataclass(frozen=True)
class PpoStage:
    """PPO on decisions of the training modules."""

    at: Setting
    settings: Ppo

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """The policy, and a value that knows nothing."""
        return ppo.start(self.at.network, weights, self.at.seed("value"))

    def iterate(self, state: Arrays, number: int) -> Step:
        """Rollouts of some modules, and an update."""
        with self.at.model(state["weights"]) as model:
            jobs = _jobs(self.at, self.settings, model, state, number)
            count = self.settings.rollouts + 1
            explored = self.at.compile(explore, jobs, self.at.label(number), count)
        rollout = ppo.Rollout(
            joined([one.inputs for one in explored]),
            np.concatenate([one.decisions for one in explored]),
            np.concatenate([one.log_probability for one in explored]),
            np.concatenate([one.reward for one in explored]),
        )
        settings = ppo.Settings(
            clip_epsilon=self.settings.clip_epsilon,
            entropy_coefficient=self.settings.entropy_coefficient,
            temperature=self.settings.temperature,
            epochs=self.settings.epochs,
            batch_size=self.settings.batch_size,
            learning_rate=self.settings.learning_rate,
        )
        following, facts = ppo.update(
            self.at.network, state, rollout, settings, self.at.seed("batches", number)
        )
        facts = {**facts, "decisions": len(rollout.decisions)}
        return Step(following, (following["weights"],), facts)


@dataclass(frozen=True)
class BestOfSeveralStage:
    """Best-of-several imitation of the training modules' best decisions."""

    at: Setting
    settings: BestOfSeveral

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """The student, and no decision to imitate."""
        return best_of_several.start(self.at.network, weights)

    def iterate(self, state: Arrays, number: int) -> Step:
        """The best decisions of some modules, and imitation of all so far."""
        with self.at.model(state["weights"]) as model:
            jobs = _jobs(self.at, self.settings, model, state, number)
            count = 2 + len(self.settings.thresholds) + self.settings.explored
            best = self.at.compile(best_of, jobs, self.at.label(number), count)
        inputs = joined([one.inputs for one in best])
        decisions = np.concatenate([one.decisions for one in best])
        following = best_of_several.update(
            self.at.network,
            best_of_several.with_rows(state, inputs, decisions),
            steps=self.settings.steps,
            batch_size=self.settings.batch_size,
            learning_rate=self.settings.learning_rate,
            seed=self.at.seed("batches", number),
        )
        facts = {
            "best_saves": float(np.mean([one.saved for one in best])),
            "decisions": len(following["rows.best.decisions"]),
        }
        return Step(following, (following["weights"],), facts)
