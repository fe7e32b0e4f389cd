# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measurements of a compiler and a policy on corpora: a row for each module, and the baseline.

A candidate's measurements have the same form, so that an accepted candidate is the next baseline.
docs/reference/formats.md describes the file.
"""

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from compiler_opt_perf.compare.errors import CompareError
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
    """The compiler, policy and inputs of a measurement.

    Attributes:
      problem: name of what the policy decides.
      corpora: folders of the modules.
      compiler: the toolchain for development mode; the digest is its clang's.
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


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one module. If the compiler fails on it, the row has no figures.

    Attributes:
      name: of the module.
      digest: of its bitcode and command.
      status: how its compilations ended.
      message: the compiler's, if a compilation failed.
      objects: SHA-256 of the different object files, of repeated compilations and of the modes.
      modes: how release and development mode differ; empty if they agree, or are not compared.
      text: bytes of machine code.
      memory: peak memory of each compilation, in KiB.
      effort: what each measured compilation took, in the setup's unit.
      decisions: that the policy took.
      with_pmu: decisions with PMU data, exact or flattened.
      exact: decisions whose own inline stack is in the profile.
      differing: decisions that the default would have taken otherwise.
      fallbacks: warnings that the compiler uses the default instead of the model.
      stale: functions that have changed since they were profiled.
      warnings: the compiler's, about models and profiles.
      instructions, cycles: of the program's recorded run, replayed with this module's code; None
        where there is no run, or it could not be replayed.
      unreplayed: why the run could not be replayed.
      detail: a `Detail`, compressed by `pack`, since decisions have long names.
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
    exact: Count = 0
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
    """Parts of a module's figures, which explain why it got worse.

    Attributes:
      functions: bytes of each function.
      scores: RegAllocScore of each function with an eviction decision.
      decisions: by key (docs/reference/features.md).
      instructions, cycles: of the recorded run, in each function.
    """

    functions: dict[str, Count] = {}
    scores: dict[str, Measure] = {}
    decisions: dict[str, Count] = {}
    instructions: dict[str, Measure] = {}
    cycles: dict[str, Measure] = {}


class ProgramRow(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one program, all of whose modules compile.

    Attributes:
      name: of the program.
      linked: bytes of machine code of its modules, linked.
      message: the linker's, if it failed.
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
    """All rows, with what was measured and where.

    Attributes:
      modules: by name.
      programs: by name, those whose modules all compile.
      against: SHA-256 of the baseline's file that a check compared these rows with; else empty.
    """

    environment: Environment
    setup: Setup
    modules: Annotated[tuple[ModuleRow, ...], msgspec.Meta(min_length=1)]
    programs: tuple[ProgramRow, ...] = ()
    against: str = ""


def pack(detail: Detail) -> bytes:
    """The detail as the bytes of `ModuleRow.detail`."""
    return zlib.compress(json.dumps(msgspec.to_builtins(detail)).encode(), 9)


def detail_of(row: ModuleRow) -> Detail:
    """The detail of a module that compiled. Raises CompareError: it is damaged."""
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(row.detail, _MOST_DETAIL_BYTES)
        if not unpack.eof:
            raise CompareError(f"{row.name}: $.detail: is truncated, or too large; {_REMEDY}")
        return decode(text, Detail, f"{row.name}, detail")
    except zlib.error as error:
        raise CompareError(f"{row.name}: $.detail: {error}; {_REMEDY}") from error
    except JsonError as error:
        raise CompareError(f"{error}; {_REMEDY}") from error


def to_json(baseline: Baseline) -> dict[str, Any]:
    """The content of a file."""
    fields: dict[str, Any] = msgspec.to_builtins(baseline)
    return {"format": FORMAT, "version": VERSION, **fields}


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Writes a file. Raises FileWriteError."""
    write_json(path, to_json(baseline))


def read_baseline(path: Path) -> Baseline:
    """Reads what `write_baseline` wrote. Raises CompareError that names file and field."""
    baseline = read_form(path, Baseline, (FORMAT, VERSION), CompareError, _REMEDY)
    repeated = [name for name, n in Counter(m.name for m in baseline.modules).items() if n > 1]
    if repeated:
        raise CompareError(f"{path}: module {repeated[0]} is listed twice; {_REMEDY}")
    for number, row in enumerate(baseline.modules):
        efforts = 1 if baseline.setup.effort != "none" else 0
        if row.is_ok and (
            not row.objects
            or len(row.memory) != baseline.setup.repetitions
            or len(row.effort) < efforts
        ):
            raise CompareError(f"{path}: $.modules[{number}]: lacks measurements; {_REMEDY}")
    return baseline


def _artifacts(setup: Setup) -> dict[str, Artifact | None]:
    """The artifacts that may differ between two setups, by name."""
    profiles = {
        f"profile of {program}" if program else "profile": one
        for program, one in setup.profiles.items()
    }
    return {
        "compiler": setup.compiler,
        "policy": setup.policy,
        "release compiler": setup.release,
        **profiles,
    }


def changed_inputs(before: Setup, after: Setup) -> tuple[str, ...]:
    """The names of the artifacts that differ. Tools for release mode may be left out."""
    one, other = _artifacts(before), _artifacts(after)
    if after.release is None:
        other["release compiler"] = before.release
    return tuple(
        name
        for name in sorted(one.keys() | other.keys())
        if digest_of(one.get(name)) != digest_of(other.get(name))
    )


def changes(before: Setup, after: Setup) -> tuple[str, ...]:
    """A sentence for each of these, with path and digest on both sides."""
    one, other = _artifacts(before), _artifacts(after)
    return tuple(
        f"{name}: {_told(other.get(name))}; in the baseline {_told(one.get(name))}"
        for name in changed_inputs(before, after)
    )


def digest_of(artifact: Artifact | None) -> str | None:
    """Its digest; None without an artifact."""
    return None if artifact is None else artifact.digest


def _told(artifact: Artifact | None) -> str:
    return "none" if artifact is None else f"{artifact.path} (SHA-256 {artifact.digest[:12]})"
