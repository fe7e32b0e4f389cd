# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Describes a measurement: compiler, policy and inputs by content, and the machine."""

import contextlib
import datetime
import errno
import hashlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from absl import logging

from compiler_opt_perf import __version__
from compiler_opt_perf.compare.baseline import Artifact, Environment, Setup
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.modes import ModesError, require_compiled_in
from compiler_opt_perf.compare.subject import Subject
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import files_of, sha256
from compiler_opt_perf.run.timing import Meter
from compiler_opt_perf.toolchain.installation import Toolchain

#: Ways to measure the compiler's effort: values of a flag.
EffortKind = Literal["auto", "instructions", "processor-time", "none"]


def setup_of(subject: Subject, corpora: Sequence[Path], meter: Meter | None) -> Setup:
    """Describes a subject on these corpora. Raises CompareError: a file cannot be read."""
    release = subject.release
    profiles = subject.profiles
    named = {"": profiles.common} if profiles.common is not None else {}
    named.update(profiles.programs)
    return Setup(
        problem=subject.problem.name,
        corpora=tuple(str(folder.absolute()) for folder in corpora),
        compiler=_compiler(subject.toolchain),
        release=None if release is None else _release(release, subject),
        policy=policy_of(subject.model),
        profiles={program: _profile(path) for program, path in sorted(named.items())},
        effort="none" if meter is None else meter.how,
        repetitions=subject.repetitions,
        timeout_s=subject.timeout_s,
        memory_mib=subject.memory_mib,
        traces={program: _file(path) for program, path in sorted(subject.traces.items())},
        cpu=None if subject.cpu is None else _file(subject.cpu),
    )


def _compiler(toolchain: Toolchain) -> Artifact:
    version = run_command([toolchain.clang, "--version"]).stdout.splitlines()[:1]
    return Artifact(str(toolchain.directory), sha256(toolchain.clang), " ".join(version))


def _release(toolchain: Toolchain, subject: Subject) -> Artifact:
    """The compiler of release mode; `is_of` tells if it holds another policy."""
    artifact = _compiler(toolchain)
    try:
        require_compiled_in(toolchain, subject.problem, subject.model)
    except ModesError as error:
        logging.warning("%s", error)
        return msgspec.structs.replace(artifact, is_of=str(error))
    return artifact


def policy_of(model: Path) -> Artifact:
    """A policy, by the content of its files. Raises CompareError: it has links, or is damaged."""
    digest = hashlib.sha256()
    try:
        for file in files_of(model):
            digest.update(f"{file.relative_to(model)}\0{sha256(file)}\0".encode())
        if not (model / "model.tflite").is_file():
            raise CompareError(f"{model}: has no model.tflite; name the folder of a policy")
    except OSError as error:
        remedy = "" if error.errno == errno.ELOOP else "; name the folder of a policy"
        raise CompareError(f"{error.filename or model}: {error.strerror}{remedy}") from error
    return Artifact(str(model.absolute()), digest.hexdigest())


def _file(path: Path) -> Artifact:
    try:
        return Artifact(str(path.absolute()), sha256(path))
    except OSError as error:
        raise CompareError(
            f"{path}: {error.strerror}; record the run again (cop trace record)"
        ) from error


def _profile(path: Path) -> Artifact:
    program = Manifest.load(path).program
    is_of = f"{program.path}, build-id {program.build_id or 'unknown'}"
    return Artifact(str(path.absolute()), sha256(path), is_of)


def environment() -> Environment:
    """This machine, now."""
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
    """The way to measure the compiler's effort as the setup did."""
    names: dict[str, EffortKind] = {"none": "none", "time": "processor-time"}
    return names.get(setup.effort, "instructions")


def same_runs(setup: Setup) -> None:
    """Checks that recorded runs and the CPU file have not changed. Raises CompareError."""
    for one in (*setup.traces.values(), *([] if setup.cpu is None else [setup.cpu])):
        if _file(Path(one.path)).digest != one.digest:
            raise CompareError(
                f"{one.path}: is not the file that the baseline was recorded with; put it back, or "
                "record a baseline with this one"
            )
