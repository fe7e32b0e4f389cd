# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a policy with the compiler's default on modules that it was not trained on.

Each module is compiled by the release-mode compiler with and without the policy, and once more in
development and in interactive mode with the same policy: that these agree is checked by the way
(see `modes`).
"""

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
from absl import logging

from compiler_opt_perf.compare.modes import TIMEOUT_S, Modes
from compiler_opt_perf.compare.remarks import count_pmu
from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy.problem import for_clang
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.json_text import Count, Measure
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.train.log import read_log

# Timed pairs of compilations a module. A count hardly varies, QEMU's not worth mentioning.
_PAIRS = {"perf": 3, "qemu": 1, "time": 7}


class ComparisonError(UserError):
    """A compilation is not deterministic, or there is nothing to compare."""


@dataclass(frozen=True)
class FunctionScores:
    """RegAllocScore of one function (lower is better) with both policies.

    Attributes:
      name: its linkage name.
      calls: in the profiled run; None when there is no profile, or it does not know the function.
      default, policy: scores; None where the function had no eviction decision.
    """

    name: str
    calls: Count | None
    default: Measure | None
    policy: Measure | None


@dataclass(frozen=True)
class ModuleComparison:
    """One module under the default policy and under the learned one.

    Attributes:
      name: of the module.
      text_default, text_policy: machine code in bytes.
      functions: those with a score, by name; none for a problem without scores.
      decisions: taken by the policy.
      with_pmu: decisions with PMU data, exact or flattened.
      exact: decisions whose own inline stack is in the profile.
      differing: decisions that the default policy would have taken otherwise.
      compile_default, compile_policy: cost of compiling, one value for each pair of compilations,
        in instructions or in seconds of processor time (Comparison.compile_time).
    """

    name: str
    text_default: Count
    text_policy: Count
    functions: tuple[FunctionScores, ...]
    decisions: Count
    with_pmu: Count
    exact: Count
    differing: Count
    compile_default: tuple[Measure, ...]
    compile_policy: tuple[Measure, ...]


@dataclass(frozen=True)
class Comparison:
    """A policy compared on a corpus.

    Attributes:
      problem: name of the problem.
      level: the default that it is compared with, e.g. "-Oz".
      modes: names of the compiler's modes, which took the same decisions and gave the same object
        files.
      seed: of the order of timed compilations, and of the intervals.
      compile_time: what was measured of compilations, in words.
      modules: one row for each module, by name; at least one.
    """

    problem: str
    level: str
    modes: tuple[str, ...]
    seed: Count
    compile_time: str
    modules: Annotated[tuple[ModuleComparison, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class _Job:
    module: Module
    modes: Modes


@dataclass(frozen=True)
class _TimingJob:
    module: Module
    clang: Path
    options: tuple[str, ...]
    meter: Meter
    pairs: int
    seed: int


def _compare_module(job: _Job) -> ModuleComparison:
    modes, module = job.modes, job.module
    problem = modes.problem
    release = for_clang(modes.release_options(module))
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

        def scores(model: Path | None) -> dict[str, float]:
            if not problem.score_in_log:
                return {}
            log = scratch / "scores.log"
            profile = modes.profiles.of(module.program) if model else None
            options = problem.development_options(model=model, log=log, profile=profile)
            compile_to("log.o", modes.development_clang, for_clang(options))
            return read_log(log).last_rewards()

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
            functions=_paired(scores(None), scores(modes.model)),
            decisions=len(decisions),
            with_pmu=len(decisions) - pmu["missing"],
            exact=pmu["exact"],
            differing=sum(decision.chosen != decision.default for decision in decisions),
            compile_default=(),
            compile_policy=(),
        )


def _paired(
    default: Mapping[str, float], policy: Mapping[str, float]
) -> tuple[FunctionScores, ...]:
    return tuple(
        FunctionScores(name, None, default.get(name), policy.get(name))
        for name in sorted(default.keys() | policy.keys())
    )


def _time_module(job: _TimingJob) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measures compilations without and with the job's options, in pairs of random order."""
    taken: tuple[list[float], list[float]] = ([], [])
    order = random.Random(job.seed)
    with tempfile.TemporaryDirectory(prefix="cop-compare-") as folder:
        commands = [
            job.module.compile_command(job.clang, Path(folder) / "a.o", options)
            for options in ((), job.options)
        ]
        # The first compilation reads its files into the page cache; counts do not depend on that.
        warm_up = 0 if job.meter.counts else 1
        for pair in range(warm_up + job.pairs):
            for which in order.sample((0, 1), 2):
                value = job.meter.measure(commands[which], TIMEOUT_S)
                if pair >= warm_up:
                    taken[which].append(value)
    return tuple(taken[0]), tuple(taken[1])


def compare(
    modes: Modes,
    corpus: Corpus,
    *,
    compile_time: str = "auto",
    repetitions: int | None = None,
    seed: int = 1,
    workers: int | None = None,
) -> Comparison:
    """Compiles every module of `corpus` in all modes.

    Args:
      modes: the policy and the compilers.
      compile_time: what to measure of compilations, a kind of `find_meter`.
      repetitions: pairs of compilations of each module, at least 1; None for a number that suits
        what is measured.
      seed: of the order of the compilations, and of the intervals.

    Raises:
      ModesError: the modes disagree.
      ComparisonError: a compilation is not deterministic, or the corpus is empty.
      CommandError: a compilation failed; it says how to reproduce it.
      CorpusError: a profile is of a program that the corpus has no modules of.
      PmuError: a profile cannot be read.
    """
    problem = modes.problem
    if not corpus.modules:
        raise ComparisonError(f"{corpus.directory}: has no modules; extract a corpus that has some")
    if repetitions is not None and repetitions < 1:
        raise ComparisonError(f"{repetitions} repetitions; expected 1 or more")
    logging.info("Comparing with seed %d", seed)
    modes.profiles.require_programs(corpus)
    loaded = {path: Profile.load(path) for path in modes.profiles.paths if problem.score_in_log}
    jobs = [_Job(module, modes) for module in corpus.modules]
    with Pool(workers) as pool:
        outcomes = pool.map(_compare_module, jobs, label=f"comparing on {len(jobs)} modules")
        rows = [outcome.get() for outcome in outcomes]
    for number, module in enumerate(corpus.modules):
        path = modes.profiles.of(module.program)
        if path in loaded:
            rows[number] = _with_calls(rows[number], loaded[path])
    if not any(row.decisions for row in rows):
        logging.warning("No decision in %s: is it for another problem?", corpus.directory)
    with tempfile.TemporaryDirectory(prefix="cop-compare-") as folder:
        meter = find_meter(compile_time, Path(folder))
        pairs = repetitions or _PAIRS[meter.how]
        timings = [
            _TimingJob(
                module,
                modes.release_clang,
                tuple(for_clang(modes.release_options(module))),
                meter,
                pairs,
                derive_seed(seed, module.name),
            )
            for module in corpus.modules
        ]
        # One at a time, so that compilations do not slow each other down.
        with Pool(workers if meter.counts else 1) as pool:
            times = pool.map(_time_module, timings, label=f"timing {len(timings)} modules")
            taken = [outcome.get() for outcome in times]
    return Comparison(
        problem=problem.name,
        level=problem.optimization_level,
        modes=modes.names,
        seed=seed,
        compile_time=f"{meter}, {pairs} pair{'s' if pairs > 1 else ''} a module",
        modules=tuple(
            replace(row, compile_default=default, compile_policy=policy)
            for row, (default, policy) in zip(rows, taken, strict=True)
        ),
    )


def _with_calls(row: ModuleComparison, profile: Profile) -> ModuleComparison:
    """The row with the calls of its functions that the profile knows; 0 where one did not run."""

    def calls(name: str) -> int | None:
        known = name in profile.executed or profile.did_not_run(name)
        return profile.samples.entries[name] if known else None

    functions = tuple(replace(one, calls=calls(one.name)) for one in row.functions)
    return replace(row, functions=functions)
