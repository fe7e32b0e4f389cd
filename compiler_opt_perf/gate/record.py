# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures all modules of corpora, and goes on where an interrupted run stopped."""

import contextlib
import datetime
import hashlib
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from absl import logging

from compiler_opt_perf import __version__
from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.cost.timing import Meter, find_meter
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.files import sha256
from compiler_opt_perf.execution.memo import note, numbered, recall
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.gate.baseline import (
    Artifact,
    Baseline,
    Environment,
    ModuleRun,
    Setup,
)
from compiler_opt_perf.gate.errors import GateError
from compiler_opt_perf.gate.measure import (
    Candidate,
    Effort,
    EffortJob,
    Job,
    fingerprint,
    measure_effort,
    measure_module,
)
from compiler_opt_perf.pmu.manifest import Manifest
from compiler_opt_perf.policies.export import load
from compiler_opt_perf.policies.problem import PROBLEMS, Problem
from compiler_opt_perf.report.modes import ModesError, require_compiled_in
from compiler_opt_perf.toolchain.installation import Toolchain

#: What is measured of the compiler's work, by the name of the flag's value.
EffortKind = Literal["auto", "instructions", "processor-time", "none"]

# Measured compilations of a module. A count hardly varies, QEMU's not worth mentioning.
_TIMES = {"perf": 3, "qemu": 2, "time": 7}

_Result = TypeVar("_Result")


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
    for program in candidate.profiles.programs:
        if program not in known:
            raise GateError(
                f"--profile={program}=...: the corpora have no modules of {program}; "
                f"their programs are {', '.join(sorted(known))}"
            )
    with tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        meter = None if effort == "none" else find_meter(effort, Path(scratch))
        setup = _setup(candidate, corpora, meter)
        notes = _Notes(work.folder, setup)
        runs = _measure(candidate, modules, work, notes)
        if meter is not None:
            runs = _with_effort(candidate, modules, work, notes, meter, runs)
    notes.remove()
    return Baseline(_environment(), setup, tuple(runs))


def _measure(
    candidate: Candidate, modules: Sequence[Module], work: Work, notes: "_Notes"
) -> list[ModuleRun]:
    found = notes.find(modules, ModuleRun)
    jobs = [Job(module, candidate) for module in modules if module.name not in found]
    with Pool(work.workers) as pool:
        outcomes = pool.map(
            measure_module,
            jobs,
            label=f"measuring {len(modules)} modules",
            keep=lambda job, run: notes.write(job.module, run),
        )
    found |= {job.module.name: one.get() for job, one in zip(jobs, outcomes, strict=True)}
    return [found[module.name] for module in modules]


def _with_effort(
    candidate: Candidate,
    modules: Sequence[Module],
    work: Work,
    notes: "_Notes",
    meter: Meter,
    runs: Sequence[ModuleRun],
) -> list[ModuleRun]:
    """The runs, those that are well with the compiler's effort."""
    well = {run.name for run in runs if run.is_ok}
    compiled = [module for module in modules if module.name in well]
    found = notes.find(compiled, Effort)
    times = _TIMES[meter.how]
    jobs = [EffortJob(one, candidate, meter, times) for one in compiled if one.name not in found]
    # One at a time, so that compilations do not slow each other down.
    with Pool(work.workers if meter.counts else 1) as pool:
        outcomes = pool.map(
            measure_effort,
            jobs,
            label=f"the compiler's effort on {len(compiled)} modules",
            keep=lambda job, effort: notes.write(job.module, effort),
        )
    found |= {job.module.name: one.get() for job, one in zip(jobs, outcomes, strict=True)}
    return [_joined(run, found[run.name]) if run.is_ok else run for run in runs]


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

    def find(self, modules: Sequence[Module], kind: type[_Result]) -> dict[str, _Result]:
        """The results of one kind that are noted, by module."""
        found = {}
        for module in modules:
            inputs = [kind.__name__, self._setup, fingerprint(module)]
            place = numbered(self._folder, inputs)
            self._places[kind.__name__, module.name] = place, inputs
            earlier = recall(place, inputs, kind)
            if earlier is not None:
                found[module.name] = earlier
        if found:
            logging.info("going on: of %d modules, %d are done", len(modules), len(found))
        return found

    def write(self, module: Module, result: ModuleRun | Effort) -> None:
        """Notes a result of a module that was looked for. Raises FileWriteError."""
        place, inputs = self._places[type(result).__name__, module.name]
        note(place, inputs, type(result), result)

    def remove(self) -> None:
        """Removes these notes, and the folder if nobody else has notes there."""
        for place, _ in self._places.values():
            place.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def _setup(candidate: Candidate, corpora: Sequence[Path], meter: Meter | None) -> Setup:
    release = candidate.release
    profiles = candidate.profiles
    named = {"": profiles.common} if profiles.common is not None else {}
    named.update(profiles.programs)
    return Setup(
        problem=candidate.problem.name,
        corpora=tuple(str(folder.absolute()) for folder in corpora),
        compiler=_compiler(candidate.toolchain),
        release=None if release is None else _release(release, candidate),
        policy=_folder(candidate.model),
        profiles={program: _profile(path) for program, path in sorted(named.items())},
        effort="none" if meter is None else meter.how,
        repetitions=candidate.repetitions,
        timeout_s=candidate.timeout_s,
        memory_mib=candidate.memory_mib,
    )


def _compiler(toolchain: Toolchain) -> Artifact:
    version = run_command([toolchain.clang, "--version"]).stdout.splitlines()[:1]
    return Artifact(str(toolchain.directory), sha256(toolchain.clang), " ".join(version))


def _release(toolchain: Toolchain, candidate: Candidate) -> Artifact:
    """The compiler of release mode, which may hold another policy than the one in question."""
    artifact = _compiler(toolchain)
    try:
        require_compiled_in(toolchain, candidate.problem, candidate.model)
    except ModesError as error:
        logging.warning("%s", error)
        return msgspec.structs.replace(artifact, is_of=str(error))
    return artifact


def _folder(model: Path) -> Artifact:
    """A policy, by the content of its files."""
    digest = hashlib.sha256()
    try:
        for file in sorted(path for path in model.rglob("*") if path.is_file()):
            digest.update(f"{file.relative_to(model)}\0{sha256(file)}\0".encode())
        if not (model / "model.tflite").is_file():
            raise GateError(f"{model}: has no model.tflite; name the folder of a policy")
    except OSError as error:
        raise GateError(f"{model}: {error.strerror}; name the folder of a policy") from error
    return Artifact(str(model.absolute()), digest.hexdigest())


def _profile(path: Path) -> Artifact:
    program = Manifest.load(path).program
    is_of = f"{program.path}, build-id {program.build_id or 'unknown'}"
    return Artifact(str(path.absolute()), sha256(path), is_of)


def _environment() -> Environment:
    return Environment(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=_processor(),
        cores=len(os.sched_getaffinity(0)),
        system=f"{platform.system()} {platform.release()}",
        package=__version__,
    )


def _processor() -> str:
    """The name of the processor, as Linux has it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def effort_of(setup: Setup) -> EffortKind:
    """What measures the compiler's work as the setup had it, if this machine can."""
    names: dict[str, EffortKind] = {"none": "none", "time": "processor-time"}
    return names.get(setup.effort, "instructions")


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
