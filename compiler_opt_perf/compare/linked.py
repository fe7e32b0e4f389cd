# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the linked text of real programs with a policy and without: what users pay for.

The policy decides in development mode; release mode decides the same (`cop compare policy`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from absl import logging

from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy.export import Policy, load
from compiler_opt_perf.run.files import read_input, sha256
from compiler_opt_perf.run.json_text import JsonError, decode, read_form
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.table import markdown
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.config import Programs
from compiler_opt_perf.train.linked import (
    COLUMNS,
    ProgramResult,
    cells,
    link_programs,
    mean_cells,
)

FORMAT = "compiler-opt-perf/linked-programs"
VERSION = 1
_REMEDY = "write it with `cop compare programs`"
#: The purpose of a program in a training, and the table's word for it.
_SEEN = {"training": "training", "validation": "choice", "test": "never seen", "": "never seen"}

_Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class LinkedProgram(msgspec.Struct, frozen=True):
    """A program.

    Attributes:
      name: of the program.
      linked: bytes of its linked text with the compiler's own policy, and with this one.
      objects: the same of its objects.
      purpose: what the policy's training used it for: "training", "validation", "test"; empty where
        the training does not know the program.
    """

    name: str
    linked: tuple[_Bytes, _Bytes]
    objects: tuple[_Bytes, _Bytes]
    purpose: str

    @property
    def result(self) -> ProgramResult:
        """The same as trainings have it."""
        return ProgramResult(self.name, self.linked, self.objects)


class LinkedPrograms(msgspec.Struct, frozen=True):
    """Programs with a policy and without.

    Attributes:
      problem: name of what is decided.
      level: of optimisation, with both.
      model: name of the policy's folder.
      digest: SHA-256 of its description.
      programs: those that could be compared.
      failed: those on which the compiler fails with the policy.
    """

    problem: str
    level: str
    model: str
    digest: str
    programs: tuple[LinkedProgram, ...]
    failed: tuple[str, ...]


def unprofiled_policy(model: Path) -> Policy:
    """The policy in a folder.

    Raises:
      ModelError: the policy is damaged.
      CompareError: the policy reads PMU features: it needs the programs' profiles.
    """
    policy = load(model)
    if policy.network.with_pmu:
        raise CompareError(
            f"{model}: reads PMU features; `cop compare policy --profile` compares it by module"
        )
    return policy


def compare_linked(
    model: Path,
    programs: Mapping[str, Sequence[Module]],
    toolchain: Toolchain,
    workers: int | None = None,
) -> LinkedPrograms:
    """Compiles and links programs with a policy and with the compiler's own.

    Args:
      model: the policy's folder.
      programs: the modules of each.
      workers: processes that compile; None: one a core.

    Raises:
      ModelError, CompareError: as `unprofiled_policy`.
      TrainingError: the compiler fails with its own policy.
    """
    policy = unprofiled_policy(model)
    compiler = Compiler.of(toolchain, policy.network.problem)
    with Pool(workers) as pool:
        ((results, failed),) = link_programs(compiler, programs, [model], toolchain.ld_lld, pool)
    purposes = _purposes(policy.description)
    for one in results:
        if _SEEN[purposes.get(one.name, "")] != "never seen":
            logging.warning("%s: the policy was trained with it: expect less elsewhere", one.name)
    return LinkedPrograms(
        policy.network.problem.name,
        policy.network.problem.optimization_level,
        model.absolute().name,
        sha256(model / "model.json"),
        tuple(
            LinkedProgram(one.name, one.linked, one.objects, purposes.get(one.name, ""))
            for one in results
        ),
        failed,
    )


def _purposes(description: Mapping[str, Any]) -> dict[str, str]:
    """The purposes of programs in the policy's training, by name, if they are known."""
    try:
        split = msgspec.convert(description["training"]["config"]["programs"], Programs)
    except (AttributeError, KeyError, TypeError, msgspec.ValidationError):
        return {}
    return {name: purpose for purpose, names in split.by_purpose.items() for name in names}


def to_json(linked: LinkedPrograms) -> dict[str, Any]:
    """The content of a file."""
    fields: dict[str, Any] = msgspec.to_builtins(linked)
    return {"format": FORMAT, "version": VERSION, **fields}


def is_linked(path: Path) -> bool:
    """Whether a file says that it is one of this kind."""
    try:
        return decode(read_input(path), dict[str, Any], path).get("format") == FORMAT
    except (OSError, JsonError):
        return False


def read_linked(path: Path) -> LinkedPrograms:
    """Reads what `to_json` wrote. Raises CompareError."""
    linked = read_form(path, LinkedPrograms, (FORMAT, VERSION), CompareError, _REMEDY)
    unknown = [one.purpose for one in linked.programs if one.purpose not in _SEEN]
    if unknown:
        raise CompareError(f"{path}: unknown purpose {unknown[0]!r}; {_REMEDY}")
    return linked


def table(linked: LinkedPrograms) -> tuple[list[str], list[list[str]], list[str]]:
    """Columns, a row a program, and the row of the mean."""
    rows = [[*cells(one.result), _SEEN[one.purpose]] for one in linked.programs]
    total = [*mean_cells([one.result for one in linked.programs]), ""]
    return [*COLUMNS, "the training"], rows, total


def title(linked: LinkedPrograms) -> str:
    """The title of the table."""
    against = f"{linked.problem} against default ({linked.level})"
    model = "" if linked.model == linked.problem else f"{linked.model}, "
    return f"{model}{against}: linked text of programs"


def describe(linked: LinkedPrograms) -> str:
    """The table, in Markdown."""
    columns, rows, total = table(linked)
    text = markdown(columns, [*rows, total])
    failed = "".join(f"The compiler fails on {name} with the policy.\n" for name in linked.failed)
    return f"{title(linked)}\n\n{text}{failed}"
