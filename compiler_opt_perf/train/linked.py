# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The linked text of programs, with a policy and with the compiler's own: what their users pay."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.cost.linked import linked_text_bytes
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.content import Content, Tool
from compiler_opt_perf.run.executor import Executor, Outcome
from compiler_opt_perf.train.compilation import Compiler, scratch
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.measure import raise_unless_of_one_compilation


def mean_change(changes: Sequence[float]) -> float:
    """The geometric mean of changes against the default; 0 of none."""
    if not changes:
        return 0.0
    return math.exp(math.fsum(math.log1p(one) for one in changes) / len(changes)) - 1.0


@dataclass(frozen=True)
class LinkJob:
    """The modules of one program, to compile and link.

    Attributes:
      model: directory of a policy, in development mode; None for the compiler without any.
      linker: ld.lld.
    """

    compiler: Compiler
    modules: tuple[Module, ...]
    model: Content | None
    linker: Tool


def linked_sizes(job: LinkJob) -> tuple[int, int, int]:
    """Bytes of text linked, of the objects, and linked with identical functions folded.

    In a pool's worker. Raises as `labels.label`.
    """
    with scratch() as folder:
        objects = [folder / f"{i}.o" for i in range(len(job.modules))]
        problem = job.compiler.problem
        for module, target in zip(job.modules, objects, strict=True):
            options = [] if job.model is None else problem.development_options(model=job.model)
            job.compiler.compile(module, target, options)
        folded = linked_text_bytes(objects, job.linker, fold=True)
        linked = folded if job.compiler.folding else linked_text_bytes(objects, job.linker)
        return linked, sum(map(text_bytes, objects)), folded


@dataclass(frozen=True)
class ProgramResult:
    """A test program with the policy.

    Attributes:
      name: the program's name.
      linked: bytes of its linked text, with the compiler's own policy and with this one.
      objects: the same of its objects.
      folded: the same of a link that folds identical functions; None if that was not measured.
    """

    name: str
    linked: tuple[int, int]
    objects: tuple[int, int]
    folded: tuple[int, int] | None = None

    @property
    def change(self) -> float:
        """The change of the linked text; -0.01 is 1% less."""
        return self.linked[1] / self.linked[0] - 1.0

    @property
    def growth(self) -> float:
        """The larger change, whether or not the linker folds."""
        folded = self.folded or self.linked
        return max(self.change, folded[1] / folded[0] - 1.0)


def limited_change(programs: Sequence[ProgramResult], largest_growth: float | None) -> float:
    """The geometric mean, or the largest growth if it is above the limit, if there is one."""
    worst = max((one.growth for one in programs), default=0.0)
    if largest_growth is not None and worst > largest_growth:
        return worst
    return mean_change([one.change for one in programs])


#: With a policy: the results, and the programs on which the compiler fails with it.
LinkedResults = tuple[tuple[ProgramResult, ...], tuple[str, ...]]


def link_programs(
    compiler: Compiler,
    programs: Mapping[str, Sequence[Module]],
    models: Sequence[Content],
    linker: Tool,
    pool: Executor,
    label: str = "test",
) -> list[LinkedResults]:
    """Compiles and links programs with the compiler's own policy, once, and with each of others.

    Args:
      programs: the modules of each.
      models: directories of the other policies.
      linker: ld.lld.
      label: shown with the progress.

    Returns:
      For each model, in their order.

    Raises:
      TrainingError: the compiler fails with its own, or a program has no code.
    """
    jobs = [
        LinkJob(compiler, tuple(modules), model, linker)
        for model in (None, *models)
        for modules in programs.values()
    ]
    outcomes = pool.map(linked_sizes, jobs, label=label)
    names, size = tuple(programs), len(programs)
    others = [outcomes[size * number :][:size] for number in range(1, len(models) + 1)]
    return [_compared(names, outcomes[:size], own) for own in others]


def _compared(
    names: Sequence[str],
    defaults: Sequence[Outcome[tuple[int, int, int]]],
    policies: Sequence[Outcome[tuple[int, int, int]]],
) -> LinkedResults:
    """Compares programs by a policy with those by the compiler's own; raises as above."""
    programs, failed = [], []
    for name, default, policy in zip(names, defaults, policies, strict=True):
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
        programs.append(ProgramResult(name, *zip(one, other, strict=True)))
    return tuple(programs), tuple(failed)


#: The columns of a table of programs.
COLUMNS = ("program", "linked text", "with the policy", "change", "objects")


def cells(one: ProgramResult) -> list[str]:
    """The cells of a program's row, one for each of `COLUMNS`."""
    objects = one.objects[1] / one.objects[0] - 1.0
    return [
        *(one.name, f"{one.linked[0]:,}", f"{one.linked[1]:,}"),
        *(f"{100 * one.change:+.2f}%", f"{100 * objects:+.2f}%"),
    ]


def mean_cells(programs: Sequence[ProgramResult]) -> list[str]:
    """The cells of the last row: geometric means over the programs."""
    linked = mean_change([one.change for one in programs])
    objects = mean_change([one.objects[1] / one.objects[0] - 1.0 for one in programs])
    return ["geometric mean", "", "", f"{100 * linked:+.2f}%", f"{100 * objects:+.2f}%"]


def table(programs: Sequence[ProgramResult]) -> str:
    """The programs, in Markdown."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(cells, programs), mean_cells(programs)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
