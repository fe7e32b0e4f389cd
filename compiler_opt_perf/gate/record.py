# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures all modules of corpora, and goes on where an interrupted run stopped."""

import contextlib
import datetime
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

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
Effort = Literal["auto", "instructions", "processor-time", "none"]

# Measured compilations of a module. A count hardly varies, QEMU's not worth mentioning.
_TIMES = {"perf": 3, "qemu": 2, "time": 7}

_Job = TypeVar("_Job", Job, EffortJob)
_Result = TypeVar("_Result")


class _Taken(msgspec.Struct, frozen=True):
    effort: tuple[float, ...]


@dataclass(frozen=True)
class Work:
    """Where finished modules are noted, and with how many processes it is done.

    Attributes:
      folder: removed when all is measured.
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


def record(candidate: Candidate, corpora: Sequence[Path], effort: Effort, work: Work) -> Baseline:
    """Measures each module of the corpora.

    Args:
      effort: what is measured of the compiler's work.

    Raises:
      GateError: nothing to measure, or a policy, profile or compiler that cannot be read.
      CorpusError: a corpus cannot be read, or has no modules of a program that a profile is of.
      PmuError: a profile's manifest cannot be read.
      FileWriteError: there is no room for notes.
    """
    modules = load_corpora(corpora)
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
        runs = _measure(candidate, modules, setup, work)
        if meter is not None:
            runs = _with_effort(candidate, modules, setup, work, meter, runs)
    shutil.rmtree(work.folder, ignore_errors=True)
    return Baseline(_environment(), setup, tuple(runs))


def _measure(
    candidate: Candidate, modules: Sequence[Module], setup: Setup, work: Work
) -> list[ModuleRun]:
    jobs = [Job(module, candidate) for module in modules]
    label = f"measuring {len(jobs)} modules"
    with Pool(work.workers) as pool:
        return _noted(pool, measure_module, jobs, ModuleRun, setup, work.folder, label)


def _with_effort(
    candidate: Candidate,
    modules: Sequence[Module],
    setup: Setup,
    work: Work,
    meter: Meter,
    runs: Sequence[ModuleRun],
) -> list[ModuleRun]:
    """The runs that are well, with the compiler's effort."""
    compiled = [(module, run) for module, run in zip(modules, runs, strict=True) if run.is_ok]
    jobs = [EffortJob(module, candidate, meter, _TIMES[meter.how]) for module, _ in compiled]
    label = f"the compiler's effort on {len(jobs)} modules"
    # One at a time, so that compilations do not slow each other down.
    with Pool(work.workers if meter.counts else 1) as pool:
        taken = _noted(pool, _effort, jobs, _Taken, setup, work.folder, label)
    efforts = {run.name: one.effort for (_, run), one in zip(compiled, taken, strict=True)}
    return [_joined(run, efforts.get(run.name, ())) for run in runs]


def _joined(run: ModuleRun, effort: tuple[float, ...]) -> ModuleRun:
    if run.is_ok and not effort:
        # It compiled a moment ago: as users compile, it does not.
        message = "the compiler failed when its effort was measured"
        return ModuleRun(name=run.name, digest=run.digest, status="failed", message=message)
    return msgspec.structs.replace(run, effort=effort)


def _effort(job: EffortJob) -> _Taken:
    return _Taken(measure_effort(job))


def _noted(
    pool: Pool,
    function: Callable[[_Job], _Result],
    jobs: Sequence[_Job],
    kind: type[_Result],
    setup: Setup,
    folder: Path,
    label: str,
) -> list[_Result]:
    """What the function returns for each job; what was noted before is not done again."""
    given = msgspec.to_builtins(setup)
    # Another list of corpora may have the same modules.
    given.pop("corpora")
    inputs = [[kind.__name__, given, fingerprint(job.module)] for job in jobs]
    places = {job.module.name: numbered(folder, own) for job, own in zip(jobs, inputs, strict=True)}
    found: dict[str, _Result] = {}
    for job, own in zip(jobs, inputs, strict=True):
        earlier = recall(places[job.module.name], own, kind)
        if earlier is not None:
            found[job.module.name] = earlier
    if found:
        logging.info("%s: going on, %d are done", label, len(found))
    asked = {job.module.name: own for job, own in zip(jobs, inputs, strict=True)}

    def keep(job: _Job, result: _Result) -> None:
        name = job.module.name
        found[name] = note(places[name], asked[name], kind, result)

    left = [job for job in jobs if job.module.name not in found]
    for outcome in pool.map(function, left, label=label, keep=keep):
        outcome.get()
    return [found[job.module.name] for job in jobs]


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


def effort_of(setup: Setup) -> Effort:
    """What measures the compiler's work as the setup had it, if this machine can."""
    names: dict[str, Effort] = {"none": "none", "time": "processor-time"}
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
