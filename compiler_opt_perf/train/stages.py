# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stages of a configuration as algorithms of a run: what they know of compilers is here."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.policy.network import WEIGHT_LIMIT, Network
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train import behavioural_cloning, cma_es, evolution_strategies
from compiler_opt_perf.train.adam import Adam
from compiler_opt_perf.train.algorithm import Algorithm, Arrays, Step, Vector, draw
from compiler_opt_perf.train.config import (
    BestOfSeveral,
    Cloning,
    CmaEs,
    Config,
    ConfigError,
    EvolutionStrategies,
    Labels,
    Ppo,
)
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.evaluation import (
    Evaluator,
    MeasuredModule,
    Measurement,
    raise_unless_of_one_compilation,
)
from compiler_opt_perf.train.run import Run
from compiler_opt_perf.train.start import default_decisions


@dataclass(frozen=True)
class Setting:
    """What a stage's algorithm works on.

    Attributes:
      run: the training.
      network: that is trained.
      evaluator: measures candidates, and counts compilations.
      number: of the stage, from 0.
    """

    run: Run
    network: Network
    evaluator: Evaluator
    number: int

    def seed(self, *names: str | int) -> int:
        """A stream of random numbers of the stage's own."""
        return derive_seed(self.run.config.seed, "stage", self.number, *names)

    def draw(self, count: int, number: int) -> list[MeasuredModule]:
        """So many training modules for an iteration; large ones take part in a share of them."""
        modules = self.run.split.training
        shares = [self.run.large.get(one.module.name, 1.0) for one in modules]
        return [modules[i] for i in draw(shares, count, self.seed("modules", number))]

    def label(self, number: int) -> str:
        """An iteration, for people."""
        stage = self.run.config.stages[self.number]
        return f"{self.run.problem.name}: {stage.algorithm} {number} of {stage.iterations}"

    def measure(self, candidates: Sequence[Vector], count: int, number: int) -> list[Measurement]:
        """The candidates of an iteration, on so many modules.

        Raises:
          TrainingError: every candidate failed on every module.
        """
        label = self.label(number)
        measured = self.evaluator.measure(candidates, self.draw(count, number), label)
        if all(one.failed_everywhere for one in measured):
            raise TrainingError(
                f"{label}: every candidate failed on every module; remove the cause that the "
                "warnings above tell, and run the same command to go on"
            )
        return measured

    @contextmanager
    def model(self, weights: npt.NDArray[Any]) -> Iterator[Path]:
        """A directory with the policy, for the compiler."""
        with tempfile.TemporaryDirectory(prefix="policy-") as folder:
            path = Path(folder) / "model"
            self.evaluator.write_model(path, weights)
            yield path

    def compile(
        self, job: Callable[[Any], Any], jobs: Sequence[Any], label: str, count: int
    ) -> list[Any]:
        """The results of jobs that compile one module each, of those that did not fail.

        Args:
          count: compilations that each takes at most, for its limit of time.

        Raises:
          TrainingError: every one failed.
        """
        limit = count * self.run.config.timeout_s + 60.0
        outcomes = self.run.pool.map(job, jobs, timeout_s=limit, label=label)
        results = []
        for one, outcome in zip(jobs, outcomes, strict=True):
            if outcome.value is None:
                raise_unless_of_one_compilation(outcome.error)
                self.evaluator.failures += 1
                logging.warning("%s: fails: %s", one.module.name, outcome.error)
                self.evaluator.compilations += 1
                continue
            self.evaluator.compilations += outcome.value.compilations
            results.append(outcome.value)
        if not results:
            raise TrainingError(
                f"{label}: the compiler failed on every module; remove the cause that the "
                "warnings above tell, and run the same command to go on"
            )
        return results


def facts_of(measured: Sequence[Measurement]) -> dict[str, float]:
    """What the curve tells of an iteration's candidates."""
    changes = [one.change for one in measured]
    return {
        "candidates_mean": float(np.mean(changes)),
        "candidates_best": min(changes),
        "candidates_failed": sum(bool(one.failed) for one in measured),
    }


@dataclass(frozen=True)
class CloningStage:
    """Imitations of the compiler's decisions in the training modules, from initial weights."""

    at: Setting
    settings: Cloning

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """Nothing but the weights, which are not used."""
        return {"weights": weights.astype(np.float64)}

    def iterate(self, state: Arrays, number: int) -> Step:
        """Several imitations: the costs of nearly equal ones can differ by several per cent."""
        run, network, settings = self.at.run, self.at.network, self.settings
        inputs, decisions = default_decisions(run, run.split.training)
        weights = [
            behavioural_cloning.train(
                network,
                inputs,
                decisions,
                behavioural_cloning.Settings(
                    steps=settings.steps,
                    batch_size=settings.batch_size,
                    learning_rate=settings.learning_rate,
                    label_smoothing=settings.label_smoothing,
                    seed=self.at.seed("imitation", number, one),
                ),
            )
            for one in range(settings.tries)
        ]
        unseen = default_decisions(run, run.split.validation)
        accuracy = behavioural_cloning.accuracy(network, weights[0], *unseen)
        logging.info(
            "the first imitation equals the compiler in %.1f%% of %d decisions of the validation "
            "modules (%.1f%% where it acts, %.1f%% where not)",
            *(100 * accuracy.overall, accuracy.rows, 100 * accuracy.active, 100 * accuracy.idle),
        )
        return Step(self.start(weights[0]), tuple(weights), {"equals_default": accuracy.overall})


@dataclass(frozen=True)
class EvolutionStrategiesStage:
    """Evolution strategies on training modules."""

    at: Setting
    settings: EvolutionStrategies

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """The weights, with no moments of a gradient yet."""
        return _arrays(evolution_strategies.State.start(weights))

    def iterate(self, state: Arrays, number: int) -> Step:
        """One generation.

        The step is an average over few candidates; with a small budget the fittest of them is
        often ahead of it: both are validated.
        """
        measured: list[Measurement] = []

        def fitness_of(candidates: Sequence[Vector]) -> Vector:
            measured.extend(self.at.measure(candidates, self.settings.modules, number))
            return np.array([-one.change for one in measured])

        adam = Adam(int(state["steps"]), state["first_moment"], state["second_moment"])
        settings = evolution_strategies.Settings(
            pairs=self.settings.pairs,
            sigma=self.settings.sigma,
            learning_rate=self.settings.learning_rate,
            seed=self.at.seed("noise"),
        )
        following, _, fittest = evolution_strategies.generation(
            evolution_strategies.State(state["weights"], adam), settings, fitness_of, _limited
        )
        return Step(_arrays(following), (following.mean, fittest), facts_of(measured))


@dataclass(frozen=True)
class CmaEsStage:
    """CMA-ES over some of the weights, on training modules."""

    at: Setting
    settings: CmaEs

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """A distribution around the weights."""
        chosen = np.asarray(weights, np.float64)[self._chosen()]
        own = cma_es.start(chosen, self.settings.sigma)
        return {"weights": weights.astype(np.float64), **own}

    def iterate(self, state: Arrays, number: int) -> Step:
        """One generation; its mean and the fittest of its candidates are validated."""
        measured: list[Measurement] = []
        chosen = self._chosen()

        def whole(values: Vector) -> Vector:
            weights = state["weights"].copy()
            weights[chosen] = values
            return weights

        def fitness_of(candidates: npt.NDArray[np.float64]) -> Vector:
            weights = [whole(one) for one in candidates]
            measured.extend(self.at.measure(weights, self.settings.modules, number))
            return np.array([-one.change for one in measured])

        own = {name: array for name, array in state.items() if name != "weights"}
        following, fittest = cma_es.iterate(
            own,
            self.settings.population,
            WEIGHT_LIMIT,
            self.at.seed("samples", number),
            fitness_of,
        )
        mean = whole(_limited(following["mean"]))
        facts = {**facts_of(measured), "sigma": float(following["sigma"])}
        return Step({"weights": mean, **following}, (mean, whole(fittest)), facts)

    def _chosen(self) -> npt.NDArray[np.bool_]:
        """Which weights change, [size]."""
        network = self.at.network
        layers = network.layers(np.arange(network.size))
        chosen = np.zeros(network.size, bool)
        if self.settings.parameters == "all":
            chosen[:] = True
        elif self.settings.parameters == "last-layer":
            for numbers in layers[-1]:
                chosen[numbers.reshape(-1)] = True
        else:
            for _, numbers in layers:
                chosen[numbers] = True
        return chosen


def _arrays(state: evolution_strategies.State) -> Arrays:
    return {
        "weights": state.mean,
        "steps": np.array(state.adam.steps, np.int64),
        "first_moment": state.adam.first_moment,
        "second_moment": state.adam.second_moment,
    }


def _limited(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.clip(weights, -WEIGHT_LIMIT, WEIGHT_LIMIT)


def algorithm_of(at: Setting) -> Algorithm:
    """The algorithm of a stage."""
    # Modules of their own, which know these ones.
    from compiler_opt_perf.train.label_stage import LabelStage
    from compiler_opt_perf.train.rollout_stages import BestOfSeveralStage, PpoStage

    stage = at.run.config.stages[at.number]
    kinds: dict[type, Callable[..., Algorithm]] = {
        Cloning: CloningStage,
        EvolutionStrategies: EvolutionStrategiesStage,
        CmaEs: CmaEsStage,
        Ppo: PpoStage,
        BestOfSeveral: BestOfSeveralStage,
        Labels: LabelStage,
    }
    return kinds[type(stage)](at, stage)


def require_stages(run_of: Config, problem: Problem, with_pmu: bool, by_evaluator: bool) -> None:
    """Refuses stages that cannot train for a problem. Raises ConfigError."""
    for number, stage in enumerate(run_of.stages):
        place = f"stage {number + 1}, {stage.algorithm}"
        if isinstance(stage, Labels) and (problem.keeps_blocks or problem.mask or with_pmu):
            raise ConfigError(
                f"{place}: labels of single decisions are for inline-size, without a profile; "
                "take another recipe, or leave --profile away"
            )
        if isinstance(stage, Ppo | BestOfSeveral | Labels) and by_evaluator:
            raise ConfigError(
                f"{place}: learns from what functions cost by {problem.reward}, not by an "
                "evaluator; take another recipe, or leave --evaluator away"
            )
