# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures all modules of corpora; an interrupted run goes on where it stopped."""

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from absl import logging

from compiler_opt_perf.compare.baseline import Baseline, ModuleRow, Setup
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.measure import (
    Effort,
    EffortJob,
    MeasureJob,
    fingerprint,
    link_program,
    try_effort,
    try_measure,
)
from compiler_opt_perf.compare.setup import EffortKind, environment, setup_of
from compiler_opt_perf.compare.subject import Subject
from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.run.memo import note, numbered, recall
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.timing import find_meter

_Result = TypeVar("_Result", ModuleRow, Effort)
_Job = TypeVar("_Job", MeasureJob, EffortJob)


@dataclass(frozen=True)
class Work:
    """How a recording works.

    Attributes:
      folder: holds notes of finished modules, until all modules are measured.
      workers: processes that compile; None for one a core.
    """

    folder: Path
    workers: int | None = None


def load_corpora(folders: Sequence[Path]) -> list[Module]:
    """The modules of all corpora, by name.

    Raises:
      CompareError: there is no module, or two have one name.
      CorpusError: a corpus cannot be read.
    """
    modules: dict[str, Module] = {}
    for folder in folders:
        for module in Corpus.load(folder).modules:
            if module.name in modules:
                raise CompareError(
                    f"{folder}: module {module.name} is in another corpus, too; name each once"
                )
            modules[module.name] = module
    if not modules:
        raise CompareError(f"{', '.join(map(str, folders))}: no modules; extract some")
    return [modules[name] for name in sorted(modules)]


def record(
    subject: Subject,
    corpora: Sequence[Path],
    modules: Sequence[Module],
    effort: EffortKind,
    work: Work,
) -> Baseline:
    """Measures each module of the corpora.

    Args:
      corpora: their folders, which the baseline names.
      modules: of the corpora, from `load_corpora`.
      effort: what is measured of the compiler's effort.

    Raises:
      CompareError: a policy, profile or compiler cannot be read, or the corpora have no modules of
        a profile's program.
      PmuError: a profile's manifest cannot be read.
      FileWriteError: the disk is full.
    """
    known = {module.program for module in modules}
    for flag, programs in (("profile", subject.profiles.programs), ("trace", subject.traces)):
        for program in programs:
            if program not in known:
                raise CompareError(
                    f"--{flag}={program}=...: the corpora have no modules of {program}; "
                    f"their programs are {', '.join(sorted(known))}"
                )
    with tempfile.TemporaryDirectory(prefix="compare-") as scratch:
        meter = None if effort == "none" else find_meter(effort, Path(scratch))
        setup = setup_of(subject, corpora, meter)
        notes = _Notes(work.folder, setup)
        jobs = [MeasureJob(one, subject, object=notes.object_of(one)) for one in modules]
        label = f"measuring {len(jobs)} modules"
        rows = notes.results(try_measure, jobs, ModuleRow, work.workers, label)
        if meter is not None:
            well = [module for module in modules if rows[module.name].is_ok]
            efforts = [EffortJob.of(one, subject, meter) for one in well]
            label = f"the compiler's effort on {len(well)} modules"
            # One at a time, so that compilations do not slow each other down.
            workers = work.workers if meter.counts else 1
            taken = notes.results(try_effort, efforts, Effort, workers, label)
            rows |= {name: _joined(rows[name], own) for name, own in taken.items()}
        programs_linked = []
        for program in sorted(known):
            own = [module for module in modules if module.program == program]
            if all(rows[module.name].is_ok for module in own):
                objects = list(map(notes.object_of, own))
                programs_linked.append(link_program(program, objects, subject.toolchain.ld_lld))
    notes.remove()
    ordered = tuple(rows[module.name] for module in modules)
    return Baseline(environment(), setup, ordered, tuple(programs_linked))


def _joined(row: ModuleRow, effort: Effort) -> ModuleRow:
    if effort.taken:
        return msgspec.structs.replace(row, effort=effort.taken)
    # In development mode it compiled a moment ago; as users compile, it does not.
    return ModuleRow(name=row.name, digest=row.digest, status=effort.status, message=effort.message)


class _Notes:
    """Results of finished modules, from which an interrupted run goes on."""

    def __init__(self, folder: Path, setup: Setup):
        self._folder = folder
        self._setup = msgspec.to_builtins(setup)
        # Another list of corpora may have the same modules.
        del self._setup["corpora"]
        self._inputs: dict[tuple[str, str], Any] = {}

    def object_of(self, module: Module) -> Path:
        """Where the object file of a module is kept, beside its note."""
        return self._place(module, ModuleRow).with_suffix(".o")

    def results(
        self,
        measure: Callable[[_Job], _Result],
        jobs: Sequence[_Job],
        kind: type[_Result],
        workers: int | None,
        label: str,
    ) -> dict[str, _Result]:
        """The results by module. Jobs with a note are not done again; the others are noted."""
        found = {}
        for job in jobs:
            earlier = recall(self._place(job.module, kind), self._of(job.module, kind), kind)
            failed = isinstance(earlier, ModuleRow) and not earlier.is_ok
            complete = kind is Effort or failed or self.object_of(job.module).is_file()
            if earlier is not None and complete:
                found[job.module.name] = earlier
        if found:
            logging.info("going on: of %d modules, %d are done", len(jobs), len(found))
        left = [job for job in jobs if job.module.name not in found]

        def keep(job: _Job, result: _Result) -> None:
            note(self._place(job.module, kind), self._of(job.module, kind), kind, result)

        with Pool(workers) as pool:
            outcomes = pool.map(measure, left, label=label, keep=keep)
        return found | {job.module.name: one.get() for job, one in zip(left, outcomes, strict=True)}

    def _of(self, module: Module, kind: type[Any]) -> Any:
        """Everything that a note's result depends on."""
        key = kind.__name__, module.name
        if key not in self._inputs:
            self._inputs[key] = [kind.__name__, self._setup, fingerprint(module)]
        return self._inputs[key]

    def _place(self, module: Module, kind: type[Any]) -> Path:
        return numbered(self._folder, self._of(module, kind))

    def remove(self) -> None:
        """Removes these notes, and the folder if nobody else has notes there."""
        for inputs in self._inputs.values():
            place = numbered(self._folder, inputs)
            place.unlink(missing_ok=True)
            place.with_suffix(".o").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def same_modules(baseline: Baseline, modules: Sequence[Module]) -> None:
    """Checks that the baseline is of these modules. Raises CompareError."""
    before = {row.name: row.digest for row in baseline.modules}
    now = {module.name: fingerprint(module) for module in modules}
    differing = sorted(
        name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
    )
    if differing:
        shown = ", ".join(differing[:3]) + (", ..." if len(differing) > 3 else "")
        raise CompareError(
            f"{len(differing)} modules of the corpora are not those of the baseline ({shown}): "
            "name its corpora with --corpus, or record a baseline of these"
        )
