# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The results of a training on labels: of its steps, and on programs that it never saw."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from absl import logging

from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import JsonError, decode
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.evaluation import raise_unless_of_one_compilation
from compiler_opt_perf.train.labels import LinkJob, ModuleSizes, count_copies, linked_size
from compiler_opt_perf.train.result import WORSE, verdict

#: A change of bytes against the default.
Change = Annotated[float, msgspec.Meta(gt=-1.0, lt=2.0**32)]


def mean_change(changes: Sequence[float]) -> float:
    """The geometric mean of changes against the default; 0 of none."""
    if not changes:
        return 0.0
    return math.exp(math.fsum(math.log1p(one) for one in changes) / len(changes)) - 1.0


class CompiledProgram(msgspec.Struct, frozen=True):
    """A program with the compiler's own policy.

    Attributes:
      modules: those that compile, with sizes and number of decisions.
      left_out: the others, with the reason.
    """

    modules: dict[str, ModuleSizes]
    left_out: dict[str, str]

    @property
    def copies(self) -> dict[str, int]:
        """As of `count_copies`."""
        return count_copies(one.shared for one in self.modules.values())


class Round(msgspec.Struct, frozen=True):
    """The result of a round.

    Attributes:
      labels: that its candidates were fitted to.
      candidates: by lead: the change of each validation program; None if the compiler fails.
    """

    labels: int
    candidates: dict[str, dict[str, Change] | None]

    @property
    def compiled(self) -> dict[str, float]:
        """By lead: the mean change, of candidates with which all validation programs compile."""
        return {
            lead: mean_change(list(own.values()))
            for lead, own in self.candidates.items()
            if own is not None
        }

    @property
    def best(self) -> tuple[str, float]:
        """Lead and mean change of the best candidate, where one compiles."""
        return min(self.compiled.items(), key=lambda item: item[1])

    @property
    def values(self) -> dict[str, float]:
        """Its figures by name, for plots: of the best candidate, and of each lead."""
        lead, change = self.best
        programs = self.candidates[lead] or {}
        return {
            "labels": self.labels,
            "validation": change,
            **{f"validation/{name}": one for name, one in programs.items()},
            **{f"lead/{name}": one for name, one in self.compiled.items()},
        }


def read_round(path: Path) -> Round:
    """Reads what a training kept of a round.

    Raises:
      TrainingError: it is missing or damaged, or no candidate of it compiled.
    """
    remedy = f"remove {path.parent} to do the rounds again"
    try:
        found = decode(read_input(path), Round, path)
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}; {remedy}") from error
    except JsonError as error:
        raise TrainingError(f"{error}; {remedy}") from error
    if not found.compiled:
        raise TrainingError(f"{path}: no candidate; {remedy}")
    return found


@dataclass(frozen=True)
class ProgramResult:
    """A test program with the policy.

    Attributes:
      name: of the program.
      linked: bytes of its linked text, with the compiler's own policy and with this one.
      objects: the same of its objects.
    """

    name: str
    linked: tuple[int, int]
    objects: tuple[int, int]

    @property
    def change(self) -> float:
        """Of the linked text, -0.01 for 1% less."""
        return self.linked[1] / self.linked[0] - 1.0


@dataclass(frozen=True)
class ImitationResult:
    """The result.

    Attributes:
      policy: directory of the published policy.
      round, lead: which candidate it was.
      labels: that it was fitted to.
      validation_change: in geometric mean over programs; optimistic, for it was chosen by them.
      programs: the test programs.
      failed: those on which the compiler fails with the policy.
    """

    policy: Path
    round: int
    lead: float
    labels: int
    validation_change: float
    programs: tuple[ProgramResult, ...]
    failed: tuple[str, ...] = ()

    @property
    def change(self) -> float:
        """Of the linked text of the test programs, in geometric mean; 0 if it fails on all."""
        return mean_change([program.change for program in self.programs])

    @property
    def is_worse(self) -> bool:
        """Whether programs are larger in the mean, or the compiler fails on one."""
        return self.verdict == WORSE

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        return verdict(self.change, self.failed)


def link_programs(
    jobs: Mapping[str, tuple[LinkJob, LinkJob]], pool: Executor
) -> tuple[tuple[ProgramResult, ...], tuple[str, ...]]:
    """Compiles and links programs with the compiler's own policy and with another.

    Args:
      jobs: by program, with the one and with the other.

    Returns:
      The results, and the programs on which the compiler fails with the other policy.

    Raises:
      TrainingError: it fails with its own, or a program has no code.
    """
    pairs = [job for pair in jobs.values() for job in pair]
    outcomes = pool.map(linked_size, pairs, label="test")
    programs, failed = [], []
    for name, default, policy in zip(jobs, outcomes[::2], outcomes[1::2], strict=True):
        for outcome in (default, policy):
            if outcome.error is not None:
                raise_unless_of_one_compilation(outcome.error)
        if default.error is not None:
            raise TrainingError(f"{name}: cannot be linked: {default.error}")
        if policy.error is not None:
            logging.warning("the compiler fails on %s: %s", name, policy.error)
            failed.append(name)
            continue
        one, other = default.get(), policy.get()
        if not all(one):
            raise TrainingError(f"{name}: has no code to compare; leave it out")
        programs.append(ProgramResult(name, (one[0], other[0]), (one[1], other[1])))
    return tuple(programs), tuple(failed)


#: Of a table of programs.
COLUMNS = ("program", "linked text", "with the policy", "change", "objects")


def cells(one: ProgramResult) -> list[str]:
    """What the `COLUMNS` say of a program."""
    objects = one.objects[1] / one.objects[0] - 1.0
    return [
        *(one.name, f"{one.linked[0]:,}", f"{one.linked[1]:,}"),
        *(f"{100 * one.change:+.2f}%", f"{100 * objects:+.2f}%"),
    ]


def mean_cells(programs: Sequence[ProgramResult]) -> list[str]:
    """The same of all of them."""
    linked = mean_change([one.change for one in programs])
    objects = mean_change([one.objects[1] / one.objects[0] - 1.0 for one in programs])
    return ["geometric mean", "", "", f"{100 * linked:+.2f}%", f"{100 * objects:+.2f}%"]


def table(result: ImitationResult) -> str:
    """The test programs, in Markdown."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(cells, result.programs)]
    rows.append(mean_cells(result.programs))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
