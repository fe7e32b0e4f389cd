# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a policy with the compiler's default on modules that it was not trained on.

Each module is measured twice, as the gate measures it: by the default and by the policy, in all
modes of the compiler, which must agree.
"""

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
from absl import logging

from compiler_opt_perf.compare.baseline import ModuleRow, detail_of
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.measure import EffortJob, MeasureJob, measure, measure_effort
from compiler_opt_perf.compare.modes import ModesError, mode_names
from compiler_opt_perf.compare.subject import Subject
from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.json_text import Count, Measure, read_form
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.run.timing import find_meter

FORMAT = "compiler-opt-perf/comparison"
VERSION = 2
_REMEDY = "write it with `cop compare policy`"


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class ModuleComparison:
    """The rows of one module, by the default and by the policy, side by side.

    Attributes:
      name: of the module.
      text_default, text_policy: machine code in bytes.
      functions: those with a score, by name; none for a problem without scores.
      decisions, with_pmu, exact, differing: of the policy, as of ModuleRow.
      compile_default, compile_policy: effort of each pair of compilations, in instructions or in
        seconds of processor time (Comparison.compile_time).
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


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A policy compared on a corpus.

    Attributes:
      problem: name of the problem.
      level: the default that it is compared with, e.g. "-Oz".
      modes: names of the compiler's modes, which took the same decisions and gave the same object
        files.
      seed: of the order of measured compilations, and of the intervals.
      compile_time: what was measured of compilations, in words.
      modules: by name; at least one.
    """

    problem: str
    level: str
    modes: tuple[str, ...]
    seed: Count
    compile_time: str
    modules: Annotated[tuple[ModuleComparison, ...], msgspec.Meta(min_length=1)]


def compare(
    subject: Subject,
    corpus: Corpus,
    *,
    compile_time: str = "auto",
    repetitions: int | None = None,
    seed: int = 1,
    workers: int | None = None,
) -> Comparison:
    """Measures every module of `corpus` by the default and by the policy.

    Args:
      subject: the policy and the compilers; needs tools for release mode.
      compile_time: what to measure of compilations, a kind of `find_meter`.
      repetitions: pairs of measured compilations of each module, at least 1; None for the number
        that suits what is measured.
      seed: of the order of the compilations, and of the intervals.

    Raises:
      ModesError: the modes disagree.
      CompareError: a compilation is not deterministic, or the corpus is empty.
      CommandError: a compilation failed; it says how to reproduce it.
      CorpusError: a profile is of a program that the corpus has no modules of.
      PmuError: a profile cannot be read.
    """
    problem, modules = subject.problem, corpus.modules
    if not modules:
        raise CompareError(f"{corpus.directory}: has no modules; extract a corpus that has some")
    if repetitions is not None and repetitions < 1:
        raise CompareError(f"{repetitions} repetitions; expected 1 or more")
    logging.info("Comparing with seed %d", seed)
    subject.profiles.require_programs(corpus)
    loaded = {path: Profile.load(path) for path in subject.profiles.paths if problem.score_in_log}
    calls = {
        module.program: loaded[path]
        for module in modules
        if (path := subject.profiles.of(module.program)) in loaded
    }
    jobs = [MeasureJob(module, subject, default) for module in modules for default in (True, False)]
    with Pool(workers) as pool:
        outcomes = pool.map(measure, jobs, label=f"comparing on {len(modules)} modules")
        rows = [outcome.get() for outcome in outcomes]
    defaults, policies = rows[::2], rows[1::2]
    for row in policies:
        if row.modes:
            raise ModesError(row.modes)
        if len(row.objects) > 1:
            raise CompareError(f"{row.name}: compiling it again gave another object")
    if not any(row.decisions for row in policies):
        logging.warning("No decision in %s: is it for another problem?", corpus.directory)
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        meter = find_meter(compile_time, Path(folder))
        efforts = [
            EffortJob.of(
                module,
                subject,
                meter,
                with_default=True,
                times=repetitions,
                seed=derive_seed(seed, module.name),
            )
            for module in modules
        ]
        # One at a time, so that compilations do not slow each other down.
        with Pool(workers if meter.counts else 1) as pool:
            times = pool.map(measure_effort, efforts, label=f"timing {len(efforts)} modules")
            taken = [outcome.get() for outcome in times]
    pairs = efforts[0].times
    return Comparison(
        problem=problem.name,
        level=problem.optimization_level,
        modes=mode_names(subject),
        seed=seed,
        compile_time=f"{meter}, {pairs} pair{'s' if pairs > 1 else ''} a module",
        modules=tuple(
            side_by_side(default, policy, calls.get(policy.program), effort)
            for default, policy, effort in zip(defaults, policies, taken, strict=True)
        ),
    )


def side_by_side(
    default: ModuleRow,
    policy: ModuleRow,
    profile: Profile | None,
    effort: tuple[tuple[float, ...], ...],
) -> ModuleComparison:
    """Two rows of one module as one.

    Args:
      profile: tells the calls of functions; 0 for one that did not run, None for one unknown.
      effort: of each pair of compilations, by the default and by the policy.
    """

    def calls(name: str) -> int | None:
        if profile is None or not (name in profile.executed or profile.did_not_run(name)):
            return None
        return profile.samples.entries[name]

    before, after = detail_of(default).scores, detail_of(policy).scores
    return ModuleComparison(
        name=policy.name,
        text_default=default.text,
        text_policy=policy.text,
        functions=tuple(
            FunctionScores(name, calls(name), before.get(name), after.get(name))
            for name in sorted(before.keys() | after.keys())
        ),
        decisions=policy.decisions,
        with_pmu=policy.with_pmu,
        exact=policy.exact,
        differing=policy.differing,
        compile_default=effort[0],
        compile_policy=effort[1],
    )


def read_comparison(path: Path) -> Comparison:
    """Reads what `summary.to_json` wrote. Raises CompareError that names file and field."""
    comparison = read_form(path, Comparison, (FORMAT, VERSION), CompareError, _REMEDY)
    for number, module in enumerate(comparison.modules):
        pairs = {len(module.compile_default), len(module.compile_policy)}
        times = (*module.compile_default, *module.compile_policy)
        if len(pairs) > 1 or pairs == {0} or not all(times):
            raise CompareError(
                f"{path}: $.modules[{number}]: compile times: expected pairs above 0; {_REMEDY}"
            )
    return comparison
