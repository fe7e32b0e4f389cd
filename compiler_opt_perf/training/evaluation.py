# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures policies on modules: the compiler's own policy once, candidates by the hundred."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.cost.size import ObjectFileError
from compiler_opt_perf.execution.command import CommandError
from compiler_opt_perf.execution.files import sha256
from compiler_opt_perf.execution.pool import Pool, WorkerError
from compiler_opt_perf.policies.export import (
    MODEL_FILE,
    OUTPUT_SPEC_FILE,
    CandidateTemplate,
    output_spec,
)
from compiler_opt_perf.training.compilation import (
    Compiler,
    Default,
    Job,
    measure_candidate,
    measure_default,
    record_path,
)
from compiler_opt_perf.training.log import LogError
from compiler_opt_perf.training.rewards import Costs, overall_gain

# Beyond the compiler's own limit, for starting it and reading what it wrote.
_GRACE_S = 30.0
_FAILURES_KEPT = 10


@dataclass(frozen=True)
class MeasuredModule:
    """A module and what the compiler's own policy makes of it.

    Attributes:
      module: the IR and its command.
      default: costs and number of decisions.
      log: training log of the compiler's own policy.
    """

    module: Module
    default: Default
    log: Path


def measure_defaults(
    compiler: Compiler, modules: Sequence[Module], folder: Path, pool: Pool
) -> list[MeasuredModule]:
    """Compiles each module with the compiler's own policy; what is in `folder` is not done again.

    A module that does not compile is left out with a warning.
    """
    problem = compiler.problem
    profile = sha256(compiler.profile) if compiler.profile is not None else ""
    compiler_key = [sha256(compiler.clang), problem.name, profile]
    compiler_key += problem.extra_rates
    compiler_key += [value or "" for value in (compiler.evaluator_inputs or {}).values()]
    logs = {module.name: folder / f"{module.name}.log" for module in modules}
    found: dict[str, Default | None] = {}
    jobs = []
    for module in modules:
        log = logs[module.name]
        log.parent.mkdir(parents=True, exist_ok=True)
        key = (*compiler_key, sha256(module.bitcode), *module.command)
        found[module.name] = _read_default(log, key)
        if found[module.name] is None:
            jobs.append(Job(compiler, module, log=log, key=key))
    outcomes = pool.map(
        measure_default,
        jobs,
        timeout_s=2 * compiler.timeout_s + _GRACE_S,
        label=f"{problem.name}: default policy" if jobs else None,
    )
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome.value is None:
            _raise_unless_of_one_compilation(outcome.error)
            logging.warning("%s is left out: %s", job.module.name, outcome.error)
        found[job.module.name] = outcome.value
    return [
        MeasuredModule(module, default, logs[module.name])
        for module in modules
        if (default := found[module.name]) is not None
    ]


def _read_default(log: Path, key: Sequence[str]) -> Default | None:
    try:
        record = json.loads(record_path(log).read_text(encoding="utf-8"))
        if record["key"] != list(key) or not log.is_file():
            return None
        return Default(record["costs"], record["decisions"], record["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        # Not there yet, or not whole: it is measured again.
        return None


def _raise_unless_of_one_compilation(error: Exception | None) -> None:
    """Lets pass what one module or candidate can cause; a bug, say, would befall all of them."""
    if isinstance(error, CommandError) and error.kind != "missing":
        return
    if not isinstance(error, LogError | ObjectFileError | WorkerError):
        raise error or AssertionError("an outcome without value and error")


class Evaluator:
    """Measures candidates in development mode.

    Attributes:
      compilations: how many were run.
      failures: how many of them failed, crashed, hung or left damaged output.
    """

    def __init__(self, compiler: Compiler, template: CandidateTemplate, pool: Pool, failures: Path):
        self.compilations = 0
        self.failures = 0
        self._compiler = compiler
        self._template = template
        self._pool = pool
        self._failures_folder = failures
        self._reward = compiler.reward

    def gains(
        self,
        candidates: Sequence[npt.NDArray[Any]],
        modules: Sequence[MeasuredModule],
        label: str | None = None,
    ) -> npt.NDArray[np.float64]:
        """Share of the default policy's cost that each candidate saves, float64 [candidates].

        A module on which a candidate fails counts as if the candidate had changed nothing; a
        candidate that fails on all modules gets -inf.

        Args:
          candidates: weight vectors.
          modules: at least one.
          label: of the progress display.
        """
        with tempfile.TemporaryDirectory(prefix="candidates-") as folder:
            jobs = []
            for number, weights in enumerate(candidates):
                model = Path(folder) / str(number)
                self._write_model(model, weights)
                jobs += [Job(self._compiler, measured.module, model) for measured in modules]
            limit = self._compiler.timeout_s + _GRACE_S
            outcomes = self._pool.map(measure_candidate, jobs, timeout_s=limit, label=label)
            self.compilations += len(jobs)
            costs: list[Costs | None] = []
            for job, outcome in zip(jobs, outcomes, strict=True):
                if outcome.value is None:
                    self._note_failure(job, outcome.error)
                costs.append(outcome.value)
        defaults = [measured.default.costs for measured in modules]
        gains = np.empty(len(candidates))
        for number in range(len(candidates)):
            own = costs[number * len(modules) : (number + 1) * len(modules)]
            if all(cost is None for cost in own):
                gains[number] = -np.inf
                continue
            filled = [
                default if cost is None else cost
                for cost, default in zip(own, defaults, strict=True)
            ]
            gains[number] = overall_gain(self._reward, defaults, filled)
        return gains

    def _write_model(self, folder: Path, weights: npt.NDArray[Any]) -> None:
        folder.mkdir()
        (folder / MODEL_FILE).write_bytes(self._template.with_weights(weights))
        (folder / OUTPUT_SPEC_FILE).write_text(json.dumps(output_spec(self._template.network)))

    def _note_failure(self, job: Job, error: Exception | None) -> None:
        """Counts a failure and keeps its model, so that the command in the warning runs again."""
        _raise_unless_of_one_compilation(error)
        assert job.model is not None
        self.failures += 1
        kept = self._failures_folder / sha256(job.model / MODEL_FILE)[:16]
        message = str(error)
        if not kept.exists() and len(list(self._failures_folder.glob("*"))) < _FAILURES_KEPT:
            shutil.copytree(job.model, kept)
        if kept.exists():
            message = message.replace(str(job.model), str(kept))
        logging.warning("%s: no improvement, for the compiler failed: %s", job.module.name, message)
