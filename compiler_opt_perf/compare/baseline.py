# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A baseline: what was measured of the modules of some corpora with one compiler and one policy.

A candidate's measurements are kept in the same form, so that an accepted candidate is the next
baseline. docs/formats.md describes the file.
"""

import json
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from compiler_opt_perf.compare.errors import GateError
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.json_text import (
    Count,
    CText,
    FieldError,
    JsonError,
    Measure,
    decode,
    read_form,
)

FORMAT = "compiler-opt-perf/gate-baseline"
VERSION = 1
_REMEDY = "write it with `cop gate record`"
# More than the names of the functions of any module take.
_MOST_DETAIL_BYTES = 1 << 28

#: How a module's compilation ended.
Status = Literal["ok", "failed", "crashed", "timeout"]


class Artifact(msgspec.Struct, frozen=True):
    """A file or a folder that results depend on.

    Attributes:
      path: where it was, as it was named.
      digest: SHA-256 of its content.
      is_of: what it says of itself: the compiler's version, or the program that was profiled.
    """

    path: CText
    digest: str
    is_of: str = ""


class Setup(msgspec.Struct, frozen=True):
    """All that was measured with.

    Attributes:
      problem: name of what the policy decides.
      corpora: folders of the modules.
      compiler: the toolchain that compiles, in development mode; the digest is that of its clang.
      release: the toolchain that the policy is compiled into; None where modes are not compared.
      policy: its folder.
      profiles: by program; "" is for all programs that have none of their own.
      effort: what was measured of the compiler's work: "perf" and "qemu" are instructions, "time"
        is seconds of processor time, "none" is nothing.
      traces: recorded runs by program, which are replayed with what the modules compile to.
      cpu: CPU file for the cycles of these runs; None where only instructions are counted.
      repetitions: compilations of each module.
      timeout_s, memory_mib: limits of one compilation.
    """

    problem: str
    corpora: Annotated[tuple[CText, ...], msgspec.Meta(min_length=1)]
    compiler: Artifact
    release: Artifact | None
    policy: Artifact
    profiles: dict[str, Artifact]
    effort: Literal["perf", "qemu", "time", "none"]
    repetitions: Annotated[int, msgspec.Meta(ge=2, le=1000)]
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    memory_mib: Annotated[int, msgspec.Meta(ge=1, le=2**40)]
    traces: dict[str, Artifact] = {}
    cpu: Artifact | None = None

    def __post_init__(self) -> None:
        if self.problem not in PROBLEMS:
            raise FieldError("problem", f"expected one of {', '.join(sorted(PROBLEMS))}")


class Environment(msgspec.Struct, frozen=True):
    """Where and when it was measured.

    Attributes:
      date: UTC, as ISO 8601 has it.
      machine: its processor.
      cores: that could be used.
      system: the kernel.
      package: version of this package.
    """

    date: str
    machine: str
    cores: Count
    system: str
    package: str


class ModuleRun(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one module. What the compiler failed on has no figures.

    Attributes:
      name: of the module.
      digest: of its bitcode and command.
      status: how its compilations ended.
      message: the compiler's, if it did not end well.
      objects: SHA-256 of the object files that the same compilation led to; one if they are equal.
      modes: how release and development mode differ; empty if they agree, or are not compared.
      text: bytes of machine code.
      memory: peak memory of each compilation, in KiB.
      effort: what each measured compilation took, in the setup's unit.
      decisions, with_pmu, differing: as of report.comparison.ModuleComparison.
      fallbacks: warnings by which the compiler says that it uses the default policy.
      stale: functions that have changed since they were profiled.
      warnings: the compiler's, about models and profiles.
      instructions, cycles: of the program's recorded run, replayed with this module's code; None
        where there is no run, or it could not be replayed.
      unreplayed: why it could not be.
      detail: a `Detail`, as `pack` has it: decisions have long names.
    """

    name: str
    digest: str
    status: Status
    message: str = ""
    objects: tuple[str, ...] = ()
    modes: str = ""
    text: Count = 0
    memory: tuple[Count, ...] = ()
    effort: tuple[Measure, ...] = ()
    decisions: Count = 0
    with_pmu: Count = 0
    differing: Count = 0
    fallbacks: Count = 0
    stale: Count = 0
    warnings: tuple[str, ...] = ()
    instructions: Measure | None = None
    cycles: Measure | None = None
    unreplayed: str = ""
    detail: bytes = b""

    @property
    def is_ok(self) -> bool:
        """Whether it has figures."""
        return self.status == "ok"

    @property
    def program(self) -> str:
        """The first part of the module's name."""
        return self.name.split("/")[0]


class Detail(msgspec.Struct, frozen=True):
    """What is looked at where a module got worse.

    Attributes:
      functions: bytes of each function.
      scores: RegAllocScore of each function with an eviction decision.
      decisions: by key (docs/features.md).
      instructions, cycles: of the recorded run, in each function.
    """

    functions: dict[str, Count] = {}
    scores: dict[str, Measure] = {}
    decisions: dict[str, Count] = {}
    instructions: dict[str, Measure] = {}
    cycles: dict[str, Measure] = {}


class ProgramRun(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of the modules of one program together, where all of them compile.

    Attributes:
      name: of the program.
      linked: bytes of machine code of its modules, linked.
      message: the linker's, if they cannot be.
    """

    name: str
    linked: Count = 0
    message: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it has figures."""
        return not self.message

    @property
    def program(self) -> str:
        """Its name."""
        return self.name


class Baseline(msgspec.Struct, frozen=True):
    """Measurements.

    Attributes:
      modules: by name.
      programs: by name, those whose modules all compile.
      against: SHA-256 of the baseline's file, of what was measured by a check.
    """

    environment: Environment
    setup: Setup
    modules: Annotated[tuple[ModuleRun, ...], msgspec.Meta(min_length=1)]
    programs: tuple[ProgramRun, ...] = ()
    against: str = ""


def pack(detail: Detail) -> bytes:
    """As `ModuleRun.detail` has it."""
    return zlib.compress(json.dumps(msgspec.to_builtins(detail)).encode(), 9)


def detail_of(run: ModuleRun) -> Detail:
    """Sizes, scores and decisions of a module that compiled. Raises GateError: it is damaged."""
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(run.detail, _MOST_DETAIL_BYTES)
        if not unpack.eof:
            raise GateError(f"{run.name}: $.detail: is truncated, or too large; {_REMEDY}")
        return decode(text, Detail, f"{run.name}, detail")
    except zlib.error as error:
        raise GateError(f"{run.name}: $.detail: {error}; {_REMEDY}") from error
    except JsonError as error:
        raise GateError(f"{error}; {_REMEDY}") from error


def to_json(baseline: Baseline) -> dict[str, Any]:
    """The content of a file."""
    fields: dict[str, Any] = msgspec.to_builtins(baseline)
    return {"format": FORMAT, "version": VERSION, **fields}


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Writes a file. Raises FileWriteError."""
    write_json(path, to_json(baseline))


def read_baseline(path: Path) -> Baseline:
    """Reads what `write_baseline` wrote. Raises GateError that names file and field."""
    baseline = read_form(path, Baseline, (FORMAT, VERSION), GateError, _REMEDY)
    repeated = [name for name, n in Counter(m.name for m in baseline.modules).items() if n > 1]
    if repeated:
        raise GateError(f"{path}: module {repeated[0]} is listed twice; {_REMEDY}")
    for number, run in enumerate(baseline.modules):
        efforts = 1 if baseline.setup.effort != "none" else 0
        if run.is_ok and (
            not run.objects
            or len(run.memory) != baseline.setup.repetitions
            or len(run.effort) < efforts
        ):
            raise GateError(f"{path}: $.modules[{number}]: lacks measurements; {_REMEDY}")
    return baseline


def changed_inputs(before: Setup, after: Setup) -> tuple[str, ...]:
    """What the second was measured with that the first was not, in words."""
    changed = []
    if before.compiler.digest != after.compiler.digest:
        changed.append("compiler")
    if before.policy.digest != after.policy.digest:
        changed.append("policy")
    releases = [None if one is None else one.digest for one in (before.release, after.release)]
    if releases[1] is not None and releases[0] != releases[1]:
        changed.append("release compiler")
    for program in sorted(before.profiles.keys() | after.profiles.keys()):
        digests = {
            own.profiles[program].digest if program in own.profiles else None
            for own in (before, after)
        }
        if len(digests) > 1:
            changed.append(f"profile of {program}" if program else "profile")
    return tuple(changed)


def changes(before: Setup, after: Setup) -> tuple[str, ...]:
    """What was measured with on both sides where that differs: path and digest of each."""
    sides: list[dict[str, Artifact | None]] = []
    for own in (before, after):
        profiles = {
            f"profile of {name}" if name else "profile": one
            for name, one in sorted(own.profiles.items())
        }
        sides.append(
            {
                "compiler": own.compiler,
                "policy": own.policy,
                "release compiler": own.release,
                **profiles,
            }
        )
    return tuple(
        f"{name}: {_told(sides[1].get(name))}; in the baseline {_told(sides[0].get(name))}"
        for name in changed_inputs(before, after)
    )


def _told(artifact: Artifact | None) -> str:
    return "none" if artifact is None else f"{artifact.path} (SHA-256 {artifact.digest[:12]})"


def by_name(baseline: Baseline) -> Mapping[str, ModuleRun]:
    """The modules."""
    return {run.name: run for run in baseline.modules}
