# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures all modules of corpora, and goes on where an interrupted run stopped."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from absl import logging

from compiler_opt_perf.compare.baseline import Baseline, ModuleRun, ProgramRun, Setup
from compiler_opt_perf.compare.errors import GateError
from compiler_opt_perf.compare.measure import (
    Candidate,
    Effort,
    EffortJob,
    Job,
    fingerprint,
    link_program,
    measure_effort,
    measure_module,
)
from compiler_opt_perf.compare.setup import EffortKind, environment, setup_of
from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.policy.export import load
from compiler_opt_perf.policy.problem import PROBLEMS, Problem
from compiler_opt_perf.run.memo import note, numbered, recall
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.timing import find_meter

# Measured compilations of a module. A count hardly varies, QEMU's not worth mentioning.
_TIMES = {"perf": 3, "qemu": 2, "time": 7}

_Result = TypeVar("_Result", ModuleRun, Effort)
_Job = TypeVar("_Job", Job, EffortJob)


@dataclass(frozen=True)
class Work:
    """Where finished modules are noted, and with how many processes it is done.

    Attributes:
      folder: for the notes, which are removed when all is measured.
      workers: processes that compile; None: one a core.
    """

    folder: Path
    workers: int | None = None


def problem_of(model: Path, name: str) -> Problem:
    """The problem with the rates of the profile that a policy takes besides.

    A policy from elsewhere, without a description, takes none.

    Raises:
      GateError: the policy is for another problem.
      ModelError: it is damaged.
    """
    if not (model / "model.json").exists():
        return PROBLEMS[name]
    problem = load(model).network.problem
    if problem.name != name:
        raise GateError(f"{model}: a policy for {problem.name}, not {name}")
    return problem


def load_corpora(folders: Sequence[Path]) -> list[Module]:
    """The modules of all corpora, by name.

    Raises:
      GateError: there is none, or two have one name.
      CorpusError: a corpus cannot be read.
    """
    modules: dict[str, Module] = {}
    for folder in folders:
        for module in Corpus.load(folder).modules:
            if module.name in modules:
                raise GateError(
                    f"{folder}: module {module.name} is in another corpus, too; name each once"
                )
            modules[module.name] = module
    if not modules:
        raise GateError(f"{', '.join(map(str, folders))}: no modules; extract some")
    return [modules[name] for name in sorted(modules)]


def record(
    candidate: Candidate,
    corpora: Sequence[Path],
    modules: Sequence[Module],
    effort: EffortKind,
    work: Work,
) -> Baseline:
    """Measures each module of the corpora.

    Args:
      corpora: folders, for the record.
      modules: theirs, as `load_corpora` gives them.
      effort: what is measured of the compiler's work.

    Raises:
      GateError: a policy, profile or compiler that cannot be read, or a profile of a program that
        the corpora have no modules of.
      PmuError: a profile's manifest cannot be read.
      FileWriteError: there is no room for notes.
    """
    known = {module.program for module in modules}
    for flag, programs in (("profile", candidate.profiles.programs), ("trace", candidate.traces)):
        for program in programs:
            if program not in known:
                raise GateError(
                    f"--{flag}={program}=...: the corpora have no modules of {program}; "
                    f"their programs are {', '.join(sorted(known))}"
                )
    with tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        meter = None if effort == "none" else find_meter(effort, Path(scratch))
        setup = setup_of(candidate, corpora, meter)
        notes = _Notes(work.folder, setup)
        jobs = [Job(module, candidate, notes.object_of(module)) for module in modules]
        label = f"measuring {len(jobs)} modules"
        runs = _each(measure_module, jobs, ModuleRun, notes, work.workers, label)
        if meter is not None:
            well = [module for module in modules if runs[module.name].is_ok]
            measured = [EffortJob(one, candidate, meter, _TIMES[meter.how]) for one in well]
            label = f"the compiler's effort on {len(well)} modules"
            # One at a time, so that compilations do not slow each other down.
            workers = work.workers if meter.counts else 1
            efforts = _each(measure_effort, measured, Effort, notes, workers, label)
            runs |= {name: _joined(runs[name], own) for name, own in efforts.items()}
        linked = _linked([job for job in jobs if runs[job.module.name].is_ok], modules)
    notes.remove()
    ordered = tuple(runs[module.name] for module in modules)
    return Baseline(environment(), setup, ordered, tuple(linked))


def _each(
    measure: Callable[[_Job], _Result],
    jobs: Sequence[_Job],
    kind: type[_Result],
    notes: "_Notes",
    workers: int | None,
    label: str,
) -> dict[str, _Result]:
    """The results by module: those that are noted, and those of the other jobs, which it notes."""
    found = notes.find([job.module for job in jobs], kind)
    left = [job for job in jobs if job.module.name not in found]
    with Pool(workers) as pool:
        outcomes = pool.map(
            measure, left, label=label, keep=lambda job, result: notes.write(job.module, result)
        )
    return found | {job.module.name: one.get() for job, one in zip(left, outcomes, strict=True)}


def _linked(jobs: Sequence[Job], modules: Sequence[Module]) -> list[ProgramRun]:
    """The programs whose modules all compile.

    Args:
      jobs: of the modules that do.
    """
    objects: dict[str, list[Path]] = {}
    for job in jobs:
        objects.setdefault(job.module.program, []).append(job.object)
    count = Counter(module.program for module in modules)
    return [
        link_program(program, paths, jobs[0].candidate.toolchain.ld_lld)
        for program, paths in sorted(objects.items())
        if len(paths) == count[program]
    ]


def _joined(run: ModuleRun, effort: Effort) -> ModuleRun:
    if effort.taken:
        return msgspec.structs.replace(run, effort=effort.taken)
    # It compiled a moment ago: as users compile, it does not.
    return ModuleRun(name=run.name, digest=run.digest, status=effort.status, message=effort.message)


class _Notes:
    """Results of finished modules, from which an interrupted run goes on."""

    def __init__(self, folder: Path, setup: Setup):
        self._folder = folder
        self._setup = msgspec.to_builtins(setup)
        # Another list of corpora may have the same modules.
        del self._setup["corpora"]
        self._places: dict[tuple[str, str], tuple[Path, Any]] = {}

    def object_of(self, module: Module) -> Path:
        """Where the object file of a module is kept, beside its note."""
        return self._place(module, ModuleRun)[0].with_suffix(".o")

    def find(self, modules: Sequence[Module], kind: type[_Result]) -> dict[str, _Result]:
        """The results of one kind that are noted, by module."""
        found = {}
        for module in modules:
            place, inputs = self._place(module, kind)
            earlier = recall(place, inputs, kind)
            if (
                isinstance(earlier, ModuleRun)
                and earlier.is_ok
                and not place.with_suffix(".o").is_file()
            ):
                continue
            if earlier is not None:
                found[module.name] = earlier
        if found:
            logging.info("going on: of %d modules, %d are done", len(modules), len(found))
        return found

    def write(self, module: Module, result: ModuleRun | Effort) -> None:
        """Notes a result. Raises FileWriteError."""
        place, inputs = self._place(module, type(result))
        note(place, inputs, type(result), result)

    def _place(self, module: Module, kind: type[ModuleRun] | type[Effort]) -> tuple[Path, Any]:
        """Of a note, and what it is noted for."""
        key = kind.__name__, module.name
        if key not in self._places:
            inputs = [kind.__name__, self._setup, fingerprint(module)]
            self._places[key] = numbered(self._folder, inputs), inputs
        return self._places[key]

    def remove(self) -> None:
        """Removes these notes, and the folder if nobody else has notes there."""
        for place, _ in self._places.values():
            place.unlink(missing_ok=True)
            place.with_suffix(".o").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def same_modules(baseline: Baseline, modules: Sequence[Module]) -> None:
    """Refuses modules that are not those of the baseline. Raises GateError."""
    before = {run.name: run.digest for run in baseline.modules}
    now = {module.name: fingerprint(module) for module in modules}
    differing = sorted(
        name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
    )
    if differing:
        shown = ", ".join(differing[:3]) + (", ..." if len(differing) > 3 else "")
        raise GateError(
            f"{len(differing)} modules of the corpora are not those of the baseline ({shown}): "
            "name its corpora with --corpus, or record a baseline of these"
        )
