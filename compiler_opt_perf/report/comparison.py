# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a policy with the compiler's default on modules that it was not trained on.

Each module is compiled by the release-mode compiler with and without the policy, and once more in
development and in interactive mode with the same policy: that these agree is checked by the way
(see `modes`).
"""

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.policies.problem import for_clang
from compiler_opt_perf.report.modes import TIMEOUT_S, Modes
from compiler_opt_perf.report.remarks import count_pmu
from compiler_opt_perf.training.log import read_log

FORMAT = "compiler-opt-perf/comparison"
VERSION = 1


class ComparisonError(Exception):
    """A compilation is not deterministic."""


@dataclass(frozen=True)
class ModuleComparison:
    """One module under the default policy and under the learned one.

    Attributes:
      name: of the module.
      text_default, text_policy: machine code in bytes.
      score_default, score_policy: RegAllocScore summed over the functions that had an eviction
        decision (lower is better); None for a problem without score.
      decisions: taken by the policy.
      with_pmu: of them, how many had PMU data, exact or flattened.
      exact: of them, how many found their own inline stack in the profile.
      differing: of them, how many the default policy would have taken otherwise.
      seconds_default, seconds_policy: compile time, medians of interleaved runs.
    """

    name: str
    text_default: int
    text_policy: int
    score_default: float | None
    score_policy: float | None
    decisions: int
    with_pmu: int
    exact: int
    differing: int
    seconds_default: float
    seconds_policy: float


@dataclass(frozen=True)
class _Job:
    module: Module
    modes: Modes


@dataclass(frozen=True)
class _TimingJob:
    module: Module
    clang: Path
    options: tuple[str, ...]
    repetitions: int


def ratio(policy: float | None, default: float | None) -> float | None:
    """policy / default; 1 when both are 0, None when one is absent or only the default is 0."""
    if policy is None or default is None:
        return None
    if default == 0:
        return 1.0 if policy == 0 else None
    return policy / default


def _compare_module(job: _Job) -> ModuleComparison:
    modes, module = job.modes, job.module
    problem = modes.problem
    release = for_clang(problem.release_options(profile=modes.profile))
    with tempfile.TemporaryDirectory(prefix="cop-compare-") as folder:
        scratch = Path(folder)

        def compile_to(name: str, clang: Path, options: Sequence[str]) -> Path:
            target = scratch / name
            run_command(
                module.compile_command(clang, target, options),
                timeout_s=TIMEOUT_S,
                env={"LLVM_LITERT_LIBRARY": str(modes.litert_library)},
            )
            return target

        def score(options: Sequence[str], log: Path) -> float | None:
            if not problem.score_in_log:
                return None
            compile_to("log.o", modes.development_clang, options)
            return sum(read_log(log).last_rewards().values())

        policy_log, default_log = scratch / "policy.log", scratch / "default.log"
        image, decisions = modes.compile(module, scratch)

        default_object = compile_to("default.o", modes.release_clang, [])
        policy_object = compile_to("policy.o", modes.release_clang, release)
        if policy_object.read_bytes() != image:
            raise ComparisonError(f"{module.name}: compiling it again gave another object")

        pmu = count_pmu(decisions)
        return ModuleComparison(
            name=module.name,
            text_default=text_bytes(default_object),
            text_policy=text_bytes(policy_object),
            score_default=score(
                for_clang(problem.development_options(log=default_log)), default_log
            ),
            score_policy=score(
                for_clang(
                    problem.development_options(
                        model=modes.model, log=policy_log, profile=modes.profile
                    )
                ),
                policy_log,
            ),
            decisions=len(decisions),
            with_pmu=len(decisions) - pmu["missing"],
            exact=pmu["exact"],
            differing=sum(decision.chosen != decision.default for decision in decisions),
            seconds_default=0.0,
            seconds_policy=0.0,
        )


def _time_module(job: _TimingJob) -> tuple[float, float]:
    """Medians of the seconds without and with the job's options, from interleaved compilations."""
    seconds: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory(prefix="cop-compare-") as folder:
        for _ in range(job.repetitions):
            for options, times in zip(((), job.options), seconds, strict=True):
                command = job.module.compile_command(job.clang, Path(folder) / "a.o", options)
                times.append(run_command(command, timeout_s=TIMEOUT_S).seconds)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


@dataclass(frozen=True)
class Comparison:
    """A policy compared on a corpus.

    Attributes:
      problem: its name.
      level: the default that it is compared with, e.g. "-Oz".
      modules: one row a module, by name.
    """

    problem: str
    level: str
    modules: tuple[ModuleComparison, ...]

    def total(self) -> ModuleComparison:
        """The sum of all rows, named "total"; see `score_ratio` for scores."""

        def add(values: list[Any]) -> Any:
            return None if any(value is None for value in values) else sum(values)

        rows = [asdict(module) for module in self.modules]
        sums = {key: add([row[key] for row in rows]) for key in rows[0] if key != "name"}
        return ModuleComparison(name="total", **sums)

    def score_ratio(self) -> float | None:
        """Mean over the modules of policy / default score; None without scores.

        A RegAllocScore is relative to each function's entry frequency: summed, it would be that of
        the one module with the hottest loop.
        """
        ratios = [ratio(module.score_policy, module.score_default) for module in self.modules]
        known = [value for value in ratios if value is not None]
        return statistics.mean(known) if known else None

    def to_json(self) -> dict[str, Any]:
        """The comparison with its total, for `write_json`."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "problem": self.problem,
            "level": self.level,
            "total": asdict(self.total()),
            "score_ratio": self.score_ratio(),
            "modules": [asdict(module) for module in self.modules],
        }


def compare(
    modes: Modes, corpus: Corpus, *, repetitions: int = 3, workers: int | None = None
) -> Comparison:
    """Compiles every module of `corpus` in all modes.

    Args:
      modes: the policy and the compilers.
      repetitions: timed compilations for each policy, interleaved.

    Raises:
      ModesError: the modes disagree.
      ComparisonError: a compilation is not deterministic.
      CommandError: a compilation failed; it says how to reproduce it.
    """
    problem = modes.problem
    jobs = [_Job(module, modes) for module in corpus.modules]
    options = tuple(for_clang(problem.release_options(profile=modes.profile)))
    timings = [
        _TimingJob(module, modes.release_clang, options, repetitions) for module in corpus.modules
    ]
    with Pool(workers) as pool:
        outcomes = pool.map(_compare_module, jobs, label=f"comparing on {len(jobs)} modules")
        rows = [outcome.get() for outcome in outcomes]
    # One at a time, so that compilations do not slow each other down.
    with Pool(1) as pool:
        times = pool.map(_time_module, timings, label=f"timing {len(jobs)} modules")
    timed = [
        replace(row, seconds_default=outcome.get()[0], seconds_policy=outcome.get()[1])
        for row, outcome in zip(rows, times, strict=True)
    ]
    return Comparison(problem.name, problem.optimization_level, tuple(timed))
