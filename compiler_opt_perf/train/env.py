# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler and the training modules, as the algorithm of one stage sees them."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy.network import IntArray, Network, to_grid
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.policy.tflite import write_model
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.log import read_log
from compiler_opt_perf.train.measure import (
    CandidateMeasurer,
    MeasuredModule,
    Measurement,
    raise_unless_of_one_compilation,
)
from compiler_opt_perf.train.rollouts import RolloutJob


class _ModuleJob(Protocol):
    """A job for a worker."""

    @property
    def module(self) -> Module:
        """The module that it compiles."""


Job = TypeVar("Job", bound=_ModuleJob)
Result = TypeVar("Result")


@dataclass(frozen=True)
class TrainingEnv:
    """The compiler as an environment: measures candidates and runs jobs on training modules.

    Attributes:
      name: the problem and the algorithm, for logs.
      network: the best policy's network when the stage began; its weights are trained.
      margin: the training's setting; after a stage of labels, the network has another one.
      measurer: measures candidates, and counts compilations.
      training, validation: the modules for these purposes.
      large: by name of the modules with more than `max_decisions`, the share of the iterations
        drawing them in which they take part.
      copies: by program and function, in how many objects the function is.
      labels: folder of the files of labels.
      seed_of_training: the setting.
      stage: number of the stage, from 0.
      before: iterations of the stages before this one.
      rows: logged decisions to learn from, at most.
    """

    name: str
    network: Network
    margin: float
    measurer: CandidateMeasurer
    training: Sequence[MeasuredModule]
    validation: Sequence[MeasuredModule]
    large: Mapping[str, float]
    copies: Mapping[str, Mapping[str, int]]
    labels: Path
    seed_of_training: int
    stage: int
    before: int
    rows: int

    @property
    def compiler(self) -> Compiler:
        """The patched compiler."""
        return self.measurer.compiler

    @property
    def problem(self) -> Problem:
        """The problem that policies decide."""
        return self.compiler.problem

    def seed(self, *names: str | int) -> int:
        """A stream of random numbers of the stage's own."""
        return derive_seed(self.seed_of_training, "stage", self.stage, *names)

    def draw(self, count: int, number: int) -> list[MeasuredModule]:
        """Draws training modules for an iteration; a large module is skipped in most iterations."""
        shares = [self.large.get(one.module.name, 1.0) for one in self.training]
        return [self.training[i] for i in draw(shares, count, self.seed("modules", number))]

    def measure(
        self, candidates: Sequence[npt.NDArray[Any]], count: int, number: int
    ) -> list[Measurement]:
        """The costs of an iteration's candidates, weights [size] each, on so many modules.

        Raises:
          TrainingError: every candidate failed on every module.
        """
        label = f"{self.name} {number}"
        modules = self.draw(count, number)
        measured = self.measurer.measure(self.network, candidates, modules, label)
        if all(one.failed_everywhere for one in measured):
            raise TrainingError(
                f"{label}: every candidate failed on every module; remove the cause that the "
                "warnings above tell, and run the same command to go on"
            )
        return measured

    @contextmanager
    def model(self, network: Network, weights: npt.NDArray[Any]) -> Iterator[Path]:
        """A directory with a policy, for the compiler."""
        with tempfile.TemporaryDirectory(prefix="policy-") as folder:
            path = Path(folder) / "model"
            path.mkdir()
            write_model(path, network, to_grid(weights))
            yield path

    def compile(
        self,
        function: Callable[[Job], Result],
        jobs: Sequence[Job],
        number: int,
        compilations: int,
        keep: Callable[[Job, Result], None] | None = None,
    ) -> list[Result | None]:
        """Compiles in workers, a module a job; None where the compiler failed.

        Args:
          compilations: the most that one job runs; its time limit grows with them.
          keep: as of `Executor.map`.

        Raises:
          TrainingError: every job failed.
        """
        label = f"{self.name} {number}"
        limit = compilations * self.compiler.limit_s + 60.0
        outcomes = self.measurer.pool.map(function, jobs, timeout_s=limit, label=label, keep=keep)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome.error is not None:
                raise_unless_of_one_compilation(outcome.error)
                logging.warning("%s: fails: %s", job.module.name, outcome.error)
        if jobs and all(outcome.value is None for outcome in outcomes):
            raise TrainingError(
                f"{label}: the compiler failed on every module; remove the cause that the "
                "warnings above tell, and run the same command to go on"
            )
        return [outcome.value for outcome in outcomes]

    def roll_out(
        self,
        rollout: Callable[[RolloutJob], Result],
        weights: npt.NDArray[Any],
        number: int,
        *,
        modules: int,
        temperature: float,
        samples: int,
        thresholds: tuple[int, ...] = (),
        compilations: int,
    ) -> list[Result]:
        """Rolls out a policy on training modules that are drawn for an iteration, and counts it.

        Args:
          rollout: `explore` or `best_of`.
          weights: the policy's, [size].
          number: the iteration.
          modules: how many modules are drawn.
          temperature, samples, thresholds: as in `RolloutJob`.
          compilations: the most that one module takes.

        Returns:
          What `rollout` found on each module that the compiler did not fail on.

        Raises:
          TrainingError: the compiler failed on every module.
        """
        with self.model(self.network, weights) as model:
            jobs = [
                RolloutJob(
                    self.compiler,
                    one.module,
                    model,
                    self.network,
                    to_grid(weights),
                    temperature,
                    samples,
                    thresholds,
                    self.seed("rollout", number, one.module.name),
                )
                for one in self.draw(modules, number)
            ]
            return self.count(self.compile(rollout, jobs, number, compilations))

    def count(self, results: Sequence[Any]) -> list[Any]:
        """Counts the results' `compilations`, and a failure for None; returns the others."""
        sound = [one for one in results if one is not None]
        failed = len(results) - len(sound)
        self.measurer.failures += failed
        self.measurer.compilations += failed + sum(one.compilations for one in sound)
        return sound

    def default_decisions(
        self, modules: Sequence[MeasuredModule]
    ) -> tuple[dict[str, npt.NDArray[Any]], IntArray]:
        """Calls the function of this name with the training's settings."""
        seed = derive_seed(self.seed_of_training, "rows")
        return default_decisions(self.compiler, modules, self.rows, seed)


def draw(shares: Sequence[float], count: int, seed: int) -> list[int]:
    """Tasks for an iteration, all of whose candidates see the same ones (common random numbers).

    Args:
      shares: for each task the probability, in (0, 1], that it is used when it is drawn. If none
        of the drawn tasks would be used, the one with the largest share is.
      count: how many are drawn; 0: all, and all are used.

    Returns:
      The indices of the tasks that are used, ascending.
    """
    if not count:
        return list(range(len(shares)))
    random = np.random.default_rng(seed)
    drawn = sorted(random.choice(len(shares), min(count, len(shares)), replace=False).tolist())
    used = [i for i in drawn if random.random() < shares[i]]
    return used or [max(drawn, key=lambda i: shares[i])]


def default_decisions(
    compiler: Compiler, modules: Sequence[MeasuredModule], rows: int, seed: int
) -> tuple[dict[str, npt.NDArray[Any]], IntArray]:
    """Features and decisions of the modules' logs, at most `rows` of them, drawn from the seed.

    One log at a time is in memory, beside the rows drawn so far.

    Returns:
      The features by name, [rows] or [rows, columns] each; the decisions, int64 [rows].
    """
    problem, profiles = compiler.problem, compiler.profiles
    counts = [measured.default.decisions for measured in modules]
    drawn = np.arange(sum(counts))
    if len(drawn) > rows:
        random = np.random.default_rng(seed)
        drawn = np.sort(random.choice(drawn, rows, replace=False))
    parts = []
    first = 0
    for measured, count in zip(modules, counts, strict=True):
        own = drawn[(drawn >= first) & (drawn < first + count)] - first
        first += count
        if own.size:
            log = read_log(measured.log).select(own)
            profiled = profiles.of(measured.module.program) is not None
            inputs = log.inputs(problem, profiles.are_read, profiled=profiled)
            parts.append((inputs, log.default_decisions(problem)))
    joined = {name: np.concatenate([inputs[name] for inputs, _ in parts]) for name in parts[0][0]}
    return joined, np.concatenate([decisions for _, decisions in parts])
