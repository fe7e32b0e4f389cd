# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Can inlining on top of PGO with ThinLTO be learnt from labels of single decisions?

Decisions after the thin link of the twenty programs by which a policy may be chosen are taken the
other way, and judged by recorded runs (`thin_labels`). Trees learn from some of the programs, and
are judged by what they would save in the others.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.changes import mean_change
from benchmarks.inline_flips import PROBLEM, TREES, percent
from benchmarks.programs.forty import Program, read_table, requests, side_by_side
from benchmarks.results import Cell, Table
from benchmarks.shuffled import exchanged
from benchmarks.size_labels import rows_of
from benchmarks.thin_labels import JUDGES, ThinProgram
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.cost_sensitive import Inputs, Trees
from compiler_opt_perf.train.label_files import Labels, labelled_rows
from compiler_opt_perf.trial.trial import Request, prepare_ways
from compiler_opt_perf.trial.ways import PGO, SPEED

PROGRAMS = {one.name: one for one in read_table().program if one.set == "choose"}
#: Decisions of a program that are taken the other way.
MOST = 30
_WAYS = (*SPEED[:2], PGO[1])
#: Trees learn from so many other programs, or from all of them.
COUNTS = (4, 9, None)
SEEDS = (1, 2, 3)
# Inputs that count what the call itself runs, by the profile.
_EXECUTIONS = ("pmu_callsite_executions_log2", "pmu_callsite_share_bp", "pmu_coverage")


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    cpu: Path,
    most: int = MOST,
    table: Mapping[str, Program] = PROGRAMS,
) -> list[Table]:
    """Labels decisions of programs; one that cannot be built or run is logged and left out.

    Args:
      folder: for builds and labels; what is there is not done again.
      cpu: CPU file of the judge.
      most: decisions of a program that are taken the other way.
      table: the programs by name.
    """
    with Pool() as pool:
        asked = requests((table[name] for name in programs), folder, toolchain, _WAYS, 0)
        tasks = {name: (table[name], *task) for name, task in asked.items()}
        label = partial(_labelled, most=most, cpu=cpu)
        found = side_by_side(pool, label, tasks, "labelling decisions of programs")
    labels = {judge: [own[judge] for own in found.values()] for judge in JUDGES}
    return tables(labels) if found else []


def _labelled(task: tuple[Program, Request, Path], *, most: int, cpu: Path) -> dict[str, Labels]:
    """Labels of a program by judge."""
    table, wanted, folder = task
    prepared = prepare_ways(wanted, folder)
    program = ThinProgram.build(table, wanted, prepared, folder.parent / "labels")
    return program.labels(most, cpu)


def tables(labels: Mapping[str, Sequence[Labels]]) -> list[Table]:
    """What decisions could save, and what trees save of it, by judge."""
    return [_all(labels), _learnt(labels)]


def _all(labels: Mapping[str, Sequence[Labels]]) -> Table:
    by_judge = [{one.module: one for one in own} for own in labels.values()]
    rows: list[list[Cell]] = []
    for name in sorted(by_judge[0]):
        row: list[Cell] = [name, len(by_judge[0][name].keys)]
        for own in by_judge:
            changes = own[name].difference
            row += [
                int((changes < 0).sum()),
                percent(changes[changes < 0]),
                int((changes > 0).sum()),
            ]
        rows.append(row)
    return Table.of(
        "labels",
        "Decisions of each program after the thin link that were taken the other way, one at a "
        "time: how many change the predicted cost of its run by a resolved amount, and the sum of "
        "those that save.",
        {
            "program": "text",
            "decisions": "integer",
            **{
                name: format
                for judge in labels
                for name, format in (
                    (f"save, {judge}", "integer"),
                    (f"sum, {judge}", "percent:+2"),
                    (f"cost, {judge}", "integer"),
                )
            },
        },
        rows,
    )


def _learnt(labels: Mapping[str, Sequence[Labels]]) -> Table:
    rows: list[list[Cell]] = []
    for judge, own in labels.items():
        inputs, advantage, groups = labelled_rows(PROBLEM, own, with_pmu=True)
        advantage = advantage / 1e4
        programs = range(groups.max() + 1)
        could = [advantage[(groups == one) & (advantage > 0)].sum() for one in programs]
        none = [None] * (len(COUNTS) - 1)
        rows.append([judge, "all that save", *none, mean_change([-one for one in could])])
        static = [one.name for one in PROBLEM.inputs(with_pmu=False)]
        read: dict[str, Inputs] = {
            "static": _only(inputs, static),
            "static and executions": _only(inputs, [*static, *_EXECUTIONS]),
            "all": inputs,
            "all, exchanged": exchanged(inputs, static, groups, SEEDS[0]),
        }
        for name, one in read.items():
            curve = [_saved(one, advantage, groups, count) for count in COUNTS]
            rows.append([judge, name, *(mean_change([-value for value in own]) for own in curve)])
    return Table.of(
        "learnt",
        "Mean change of a program's predicted cost, as the sum of single decisions: of all that "
        "save, and of those that trees choose which learnt from other programs.",
        {
            "judge": "text",
            "inputs": "text",
            **{
                "all others" if count is None else f"{count} others": "percent:+2"
                for count in COUNTS
            },
        },
        rows,
    )


def _only(inputs: Inputs, names: Sequence[str]) -> Inputs:
    return {name: inputs[name] for name in names}


def _saved(
    inputs: Inputs,
    advantage: npt.NDArray[np.float64],
    groups: npt.NDArray[np.int64],
    count: int | None,
) -> list[float]:
    """What trees save in each program by labels of others, percent, the mean of the seeds.

    Args:
      count: of other programs, drawn by the seed; None for all of them.
    """
    names = np.unique(groups)
    saved = np.zeros((len(SEEDS), len(names)))
    for row, seed in enumerate(SEEDS):
        random = np.random.default_rng(derive_seed(seed, "programs"))
        for group in names:
            others = names[names != group]
            drawn = others if count is None else random.permutation(others)[:count]
            read, own = np.isin(groups, drawn), groups == group
            trees = Trees.fit(
                rows_of(inputs, read), advantage[read] * 1e4, groups[read], TREES, seed
            )
            saved[row, group] = advantage[own][trees.otherwise(rows_of(inputs, own)) > 0.5].sum()
    return [float(value) for value in saved.mean(axis=0)]
