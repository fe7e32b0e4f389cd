# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The decisions that a policy takes otherwise than the compiler's own, with their worth.

A module is compiled with the policy in development mode. Where a decision is another one than the
compiler's own policy would take there, after all that was decided before, it is taken back: the
bytes that this alone changes are what the decision is worth (train.labels).

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.compilation import Compiler, scratch
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.labels import (
    Flipper,
    LabelJob,
    ModuleSizes,
    count_copies,
    module_sizes,
)
from compiler_opt_perf.train.log import TrainingLog
from compiler_opt_perf.train.measure import raise_unless_of_one_compilation


@dataclass(frozen=True)
class Site:
    """A decision that differs.

    Attributes:
      module: its module's name.
      key: the decision's key (docs/reference/features.md).
      decision, default: the policy's, and what the compiler's own would be in its place.
      change: bytes of the module, less bytes with this decision taken back; None where that was
        not tried, or decisions are not about call sites.
    """

    module: str
    key: str
    decision: int
    default: int
    change: float | None


@dataclass(frozen=True)
class ModuleDifferences:
    """A module with the policy and with the compiler's own.

    Attributes:
      module: its name.
      default, policy: bytes of its functions; of a function that several objects of the program
        have, a part.
      decisions: that the policy took.
      sites: those that differ, those that are worth most first.
    """

    module: str
    default: float
    policy: float
    decisions: int
    sites: tuple[Site, ...]

    @property
    def program(self) -> str:
        """The first part of the module's name."""
        return self.module.split("/")[0]


@dataclass(frozen=True)
class DifferencesJob:
    """A module, with the policy, and how many decisions are taken back in it, at most."""

    label: LabelJob
    default: ModuleSizes


def module_differences(job: DifferencesJob) -> ModuleDifferences:
    """Compiles one module. In a pool's worker. Raises as `train.labels.label`."""
    with scratch() as folder:
        problem, module = job.label.compiler.problem, job.label.module.name
        flipper = Flipper(job.label, folder)
        sizes, log = flipper.compile({})
        decided = log.observations[problem.decision].reshape(-1).tolist() if log.keys else []
        defaults = _defaults(problem, log)
        taken = dict(zip(log.keys, decided, strict=True))
        rows = [row for row, default in enumerate(defaults) if decided[row] != default]
        change: dict[str, float] = {}
        # Another eviction changes all later ones in the function: no single one has a worth.
        if problem.mask is None:
            tried = rows
            if len(rows) > job.label.most:
                draw = np.random.default_rng(job.label.seed)
                tried = sorted(draw.choice(rows, job.label.most, replace=False).tolist())
            flips = flipper.flips([log.keys[row] for row in tried], taken, sizes)
            change = {key: -difference for key, difference in flips.items()}
        sites = [
            Site(module, log.keys[row], decided[row], defaults[row], change.get(log.keys[row]))
            for row in rows
        ]
        copies = job.label.copies
        return ModuleDifferences(
            module,
            job.default.weighted(copies),
            sizes.weighted(copies),
            len(decided),
            tuple(sorted(sites, key=_by_worth)),
        )


def _by_worth(site: Site) -> tuple[bool, float, str, str]:
    return site.change is None, site.change or 0.0, site.module, site.key


def _defaults(problem: Problem, log: TrainingLog) -> list[int]:
    """The decision that the compiler's own policy would take, for each decision of the log."""
    if not log.keys:
        return []
    values = log.observations[problem.default_feature].reshape(len(log.keys), -1)
    chosen = values[:, 0] if problem.mask is None else values.argmax(axis=1)
    return [int(one) for one in chosen]


@dataclass(frozen=True)
class Differences:
    """The differences between a policy and the compiler's own in some modules.

    Attributes:
      problem: name of what is decided.
      modules: by name.
      failed: modules that do not compile, with the reason.
    """

    problem: str
    modules: tuple[ModuleDifferences, ...]
    failed: dict[str, str]

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites of all modules, ordered by bytes saved, most first."""
        return tuple(sorted((s for one in self.modules for s in one.sites), key=_by_worth))


def find_differences(
    compiler: Compiler, policy: Path, modules: Sequence[Module], pool: Pool, *, most: int, seed: int
) -> Differences:
    """Compiles modules with a policy and with the compiler's own.

    Args:
      policy: its folder.
      most: so many decisions of a module are taken back, drawn at random if there are more.
      seed: for the draws.

    Raises:
      TrainingError: no module compiles.
    """
    failed: dict[str, str] = {}
    jobs = [LabelJob(compiler, module) for module in modules]
    measured = pool.map(module_sizes, jobs, label=f"{compiler.problem.name}: default")
    defaults: dict[str, ModuleSizes] = {}
    for module, outcome in zip(modules, measured, strict=True):
        if outcome.error is None:
            defaults[module.name] = outcome.get()
        else:
            failed[module.name] = _reason(outcome.error)
    shared: dict[str, list[Sequence[str]]] = {}
    for module in modules:
        if module.name in defaults:
            shared.setdefault(module.program, []).append(defaults[module.name].shared)
    copies = {program: count_copies(own) for program, own in shared.items()}
    work = []
    for module in modules:
        if module.name in defaults:
            default, own = defaults[module.name], copies[module.program]
            label = LabelJob(
                compiler,
                module,
                policy,
                copies=default.own(own),
                most=most,
                seed=derive_seed(seed, "differences", module.name),
            )
            work.append(DifferencesJob(label, default))
    compared = pool.map(module_differences, work, label=f"{compiler.problem.name}: differences")
    found = []
    for job, result in zip(work, compared, strict=True):
        if result.error is None:
            found.append(result.get())
        else:
            failed[job.label.module.name] = _reason(result.error)
    for name, reason in failed.items():
        logging.warning("%s is left out: %s", name, reason)
    if not found:
        (reason, *_) = failed.values() or ["there is none"]
        raise TrainingError(f"{policy}: no module compiles; the first: {reason}")
    return Differences(compiler.problem.name, tuple(found), failed)


def _reason(error: Exception | None) -> str:
    raise_unless_of_one_compilation(error)
    return str(error)
