# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures policies on modules: the compiler's own policy once, candidates by the hundred."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.cost.recording import RecordingError
from compiler_opt_perf.cost.regalloc_score import ScoreError
from compiler_opt_perf.cost.size import ObjectFileError
from compiler_opt_perf.policy.network import Network, to_grid
from compiler_opt_perf.policy.tflite import MODEL_FILE, write_model
from compiler_opt_perf.run.command import CommandError
from compiler_opt_perf.run.executor import Executor, WorkerError
from compiler_opt_perf.run.files import FileWriteError, copy_folder, has_sha256, sha256
from compiler_opt_perf.run.memo import recall
from compiler_opt_perf.train.compilation import (
    Compiler,
    Default,
    Job,
    keep_default,
    measure_candidate,
    measure_default,
    object_path,
    record_path,
)
from compiler_opt_perf.train.log import LogError

# Added to the compiler's own limit, for starting it and reading what it wrote.
_GRACE_S = 30.0
_FAILURES_KEPT = 10
# The cost of a module on which a candidate fails, as a multiple of the default's; if a candidate
# measured with it costs more there, that one's cost.
FAILURE_RATIO = 2.0


@dataclass(frozen=True)
class MeasuredModule:
    """A module with the result of the compiler's own policy.

    Attributes:
      module: the IR and its command.
      default: costs and number of decisions.
      log: training log of the compiler's own policy.
    """

    module: Module
    default: Default
    log: Path


@dataclass(frozen=True)
class Measurement:
    """The cost of a candidate on some modules.

    Attributes:
      change: against the default's cost; -0.01 is 1% less. Modules with failures are charged.
      failed: names of the modules on which the compiler failed with it.
      modules: on how many modules it was measured.
    """

    change: float
    failed: tuple[str, ...]
    modules: int

    @property
    def failed_everywhere(self) -> bool:
        """The candidate failed on every module, so that its cost is unknown."""
        return len(self.failed) == self.modules

    def __str__(self) -> str:
        failed = f" ({len(self.failed)} of {self.modules} failed)" if self.failed else ""
        return f"{100 * self.change:+.3f}%{failed}"


def cheapest(measured: Sequence[Measurement]) -> int | None:
    """Index of the cheapest candidate without a failure, the first of equals; else None."""
    sound = [index for index, one in enumerate(measured) if not one.failed]
    return min(sound, key=lambda index: measured[index].change, default=None)


def measure_defaults(
    compiler: Compiler, modules: Sequence[Module], folder: Path, pool: Executor
) -> tuple[list[MeasuredModule], dict[str, str]]:
    """Compiles each module with the compiler's own policy, unless `folder` has its result.

    Returns:
      The measured modules, and by name why each other module is left out.
    """
    problem = compiler.problem
    profiles = {
        program: compiler.profiles.checksum_of(program) or ""
        for program in {module.program for module in modules}
    }
    clang = sha256(compiler.clang)
    others = [*problem.extra_rates, *([compiler.reward.name] if compiler.copies else [])]
    others += ["folding"] if compiler.folding else []
    others += compiler.options
    others += [value or "" for value in (compiler.evaluator_inputs or {}).values()]
    logs = {module.name: folder / f"{module.name}.log" for module in modules}
    found: dict[str, Default | None] = {}
    jobs = []
    for module in modules:
        log = logs[module.name]
        key = (clang, problem.name, profiles[module.program], *others)
        key += (*map(sha256, module.inputs), *module.command)
        found[module.name] = read_default(log, key)
        if compiler.folding and not object_path(log).is_file():
            found[module.name] = None
        if found[module.name] is None:
            jobs.append(Job(compiler, module, log=log, key=key))
    outcomes = pool.map(
        measure_default,
        jobs,
        timeout_s=2 * compiler.limit_s + _GRACE_S,
        label=f"{problem.name}: default policy" if jobs else None,
        keep=keep_default,
    )
    left_out: dict[str, str] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome.value is None:
            raise_unless_of_one_compilation(outcome.error)
            logging.warning("%s is left out: %s", job.module.name, outcome.error)
            left_out[job.module.name] = f"cannot be measured: {_brief(outcome.error)}"
        found[job.module.name] = None if outcome.value is None else outcome.value.default
    measured = [
        MeasuredModule(module, default, logs[module.name])
        for module in modules
        if (default := found[module.name]) is not None
    ]
    return measured, left_out


def read_default(log: Path, key: Sequence[str]) -> Default | None:
    """The result beside a log; None if one of them is missing, damaged or of something else."""
    found = recall(record_path(log), key, Default)
    try:
        return found if found is not None and has_sha256(log, found.log) else None
    except OSError:
        return None


def raise_unless_of_one_compilation(error: Exception | None) -> None:
    """Raises what no single module or candidate can cause, such as a bug of ours."""
    if isinstance(error, CommandError) and error.kind != "missing":
        return
    if isinstance(error, FileWriteError):
        # Raised in a worker: the traceback of this process would not show where.
        raise error from None
    if not isinstance(error, LogError | ObjectFileError | RecordingError | WorkerError):
        raise error or AssertionError("an outcome with neither value nor error")


def _brief(error: Exception | None) -> str:
    """The reason without times and temporary names, so that it is the same in each run."""
    if isinstance(error, RecordingError):
        return "its program cannot be recorded with it"
    if not isinstance(error, CommandError):
        return "the compiler left a damaged file, or its process was killed"
    if error.is_out_of_memory:
        return f"{error.reason.split(':')[0]} needs more memory than its limit (memory_mib)"
    how = {"timeout": "exceeds the time limit", "crashed": "crashes"}
    program = error.reason.split(":")[0]
    return f"{program} {how.get(error.kind, 'fails')}"


class CandidateMeasurer:
    """Measures candidates in development mode.

    Attributes:
      compiler: the patched compiler.
      pool: workers that compile.
      compilations: how many were run.
      failures: how many of them failed, crashed, hung or left output that cannot be compared.
    """

    def __init__(
        self,
        compiler: Compiler,
        pool: Executor,
        failures: Path,
        weights: Mapping[str, Mapping[str, float]],
    ):
        """Begins without any compilation.

        Args:
          failures: folder for models that made the compiler fail.
          weights: weights of functions, by program and name (`Reward.ratio`).
        """
        self.compiler = compiler
        self.pool = pool
        self.compilations = 0
        self.failures = 0
        self._failures_folder = failures
        self._weights = weights

    def measure(
        self,
        network: Network,
        candidates: Sequence[npt.NDArray[Any]],
        modules: Sequence[MeasuredModule],
        label: str | None = None,
        *,
        on_grid: bool = True,
    ) -> list[Measurement]:
        """The cost of each candidate against the default's.

        A module on which a candidate fails costs it `FAILURE_RATIO` times the default's cost, or
        as much as the worst candidate if that is more, so that failing never pays.

        Args:
          network: the network of all candidates.
          candidates: weights [network.size] each.
          modules: at least one.
          label: shown with the progress.
          on_grid: the weights are brought to the grid that published ones are on.
        """
        ratios = self._ratios(network, candidates, modules, label, on_grid)
        worst = np.fmax.reduce(ratios, axis=0, initial=FAILURE_RATIO)
        charged = np.where(np.isnan(ratios), worst, ratios)
        reward, by_program = self.compiler.reward, self.compiler.reward.by_program
        programs = [measured.module.program for measured in modules]
        totals = [
            one.default.costs.weighted(self._weights.get(program, {}) if by_program else {})
            for one, program in zip(modules, programs, strict=True)
        ]
        names = [measured.module.name for measured in modules]
        return [
            Measurement(
                reward.change(totals, row.tolist(), programs),
                tuple(name for name, failed in zip(names, np.isnan(own), strict=True) if failed),
                len(modules),
            )
            for own, row in zip(ratios, charged, strict=True)
        ]

    def _ratios(
        self,
        network: Network,
        candidates: Sequence[npt.NDArray[Any]],
        modules: Sequence[MeasuredModule],
        label: str | None,
        on_grid: bool,
    ) -> npt.NDArray[np.float64]:
        """Costs as multiples of the default's, [candidates, modules]; NaN where one failed."""
        ratios = np.full((len(candidates), len(modules)), np.nan)
        with tempfile.TemporaryDirectory(prefix="candidates-") as folder:
            jobs = []
            for number, weights in enumerate(candidates):
                model = Path(folder) / str(number)
                model.mkdir()
                write_model(model, network, to_grid(weights) if on_grid else weights)
                jobs += [Job(self.compiler, measured.module, model) for measured in modules]
            limit = self.compiler.limit_s + _GRACE_S
            outcomes = self.pool.map(measure_candidate, jobs, timeout_s=limit, label=label)
            self.compilations += len(jobs)
            for place, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True)):
                if outcome.value is None:
                    raise_unless_of_one_compilation(outcome.error)
                    self._note_failure(job, str(outcome.error))
                    continue
                default = modules[place % len(modules)].default.costs
                try:
                    function_weights = self._weights.get(job.module.program, {})
                    ratio = self.compiler.reward.ratio(default, outcome.value, function_weights)
                except ScoreError as error:
                    self._note_failure(job, str(error))
                    continue
                ratios.flat[place] = ratio
        return ratios

    def _note_failure(self, job: Job, message: str) -> None:
        """Counts a failure and keeps its model, so that the command in the warning runs again."""
        assert job.model is not None
        self.failures += 1
        kept = self._failures_folder / sha256(job.model / MODEL_FILE)[:16]
        if not kept.exists() and len(list(self._failures_folder.glob("*"))) < _FAILURES_KEPT:
            copy_folder(job.model, kept)
        if kept.exists():
            message = message.replace(str(job.model), str(kept))
        logging.warning("%s: a candidate fails: %s", job.module.name, message)
