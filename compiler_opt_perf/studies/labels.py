# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What do labels of single decisions teach about programs that were never seen?

Of a training on labels (training.dataset_aggregation), each training program is left out in turn:
trees and a network learn from the labels of the others. What they would save by deciding otherwise
than the compiler, label by label, is compared with what the best of both ways would save, in bytes.
Decisions that the policy would have come to by itself are not among them: this is about learning,
the training's own test about results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from absl import logging

from compiler_opt_perf.execution.seeds import derive_seed
from compiler_opt_perf.policies.network import to_grid
from compiler_opt_perf.training import cost_sensitive
from compiler_opt_perf.training.dataset_aggregation import PROBLEM
from compiler_opt_perf.training.errors import TrainingError
from compiler_opt_perf.training.folder import TrainingFolder
from compiler_opt_perf.training.label_files import Labels, labelled_rows, logged_rows, read_labels
from compiler_opt_perf.training.recipe import Recipe, recipe_of

# Shares of the compilations, for the curve.
_SHARES = (0.125, 0.25, 0.5, 1.0)
# A program with less to save tells nothing.
_LEAST_BYTES = 200.0


@dataclass(frozen=True)
class _Kept:
    """Bytes saved on a left-out program."""

    best: float
    trees: float
    # Not asked for in the curve.
    network: float = 0.0


def study(training: Path) -> str:
    """The tables, in Markdown.

    Args:
      training: folder of a training, with its labels; learns by the training's recipe.

    Raises:
      TrainingError: the folder has no recipe, or no labels of two programs.
      LabelsError: a damaged file.
    """
    recipe = recipe_of(TrainingFolder(training).inputs(), training)
    programs: dict[str, list[Labels]] = {}
    for path in sorted(training.glob("labels/*/**/*.npz")):
        labels = read_labels(path)
        if len(labels.keys):
            programs.setdefault(labels.module.split("/")[0], []).append(labels)
    if len(programs) < 2:
        raise TrainingError(f"{training}: no labels of two programs; `cop imitate` makes them")
    drawn = {share: _draw(programs, share, recipe.seed) for share in _SHARES}
    kept = {
        share: {name: _leave_out(name, programs[name], some, recipe, share) for name in programs}
        for share, some in drawn.items()
    }
    curve = [(drawn[share], kept[share]) for share in _SHARES]
    return "\n".join([_programs_table(programs, kept[1.0]), "", _curve_table(curve), ""])


def _draw(
    programs: Mapping[str, Sequence[Labels]], share: float, seed: int
) -> dict[str, list[Labels]]:
    """Modules, drawn at random, that took a share of all compilations; by program.

    A smaller share is a part of a larger one.
    """
    modules = [(name, one) for name, own in programs.items() for one in own]
    order = np.random.default_rng(derive_seed(seed, "share")).permutation(len(modules))
    spent = np.cumsum([modules[i][1].compilations for i in order])
    some: dict[str, list[Labels]] = {name: [] for name in programs}
    for i in np.sort(order[spent <= share * spent[-1]]):
        name, one = modules[i]
        some[name].append(one)
    return some


def _leave_out(
    name: str,
    own: Sequence[Labels],
    programs: Mapping[str, Sequence[Labels]],
    recipe: Recipe,
    share: float,
) -> _Kept:
    """Learns from the labels of other programs.

    Args:
      own: labels of the program that is left out.
      programs: labels of all programs, or a share of them.
    """
    logging.info("without %s, %g%% of the compilations", name, 100 * share)
    others = [one for other, labels in programs.items() if other != name for one in labels]
    unseen, saved, _ = labelled_rows(PROBLEM, own)
    best = float(saved[saved > 0].sum())
    if not others:
        return _Kept(best, 0.0)
    inputs, gain, numbers = labelled_rows(PROBLEM, others)
    trees = cost_sensitive.Trees.fit(PROBLEM, inputs, gain, numbers, recipe.trees, recipe.seed)
    by_trees = float(saved[trees.otherwise(unseen) > 0.5].sum())
    if share < 1:
        return _Kept(best, by_trees)
    logged = logged_rows(PROBLEM, others)
    network, weights = cost_sensitive.student(trees, PROBLEM, logged, recipe.network, recipe.seed)
    otherwise = network.decide(to_grid(weights), unseen) != unseen[PROBLEM.default_feature]
    return _Kept(best, by_trees, float(saved[otherwise].sum()))


def _programs_table(programs: Mapping[str, Sequence[Labels]], kept: Mapping[str, _Kept]) -> str:
    lines = [
        "| left out | labels | best of both ways | trees | network |",
        "|---|---|---|---|---|",
    ]
    for name, one in kept.items():
        count = sum(len(labels.keys) for labels in programs[name])
        lines.append(
            f"| {name} | {count:,} | {one.best:,.0f} | {one.trees:+,.0f} | {one.network:+,.0f} |"
        )
    told = [one for one in kept.values() if one.best >= _LEAST_BYTES]
    if told:
        trees = np.mean([one.trees / one.best for one in told])
        network = np.mean([one.network / one.best for one in told])
        lines.append(
            f"| mean share of the best, {len(told)} programs | | | {100 * trees:+.0f}% | "
            f"{100 * network:+.0f}% |"
        )
    return "\n".join(lines)


def _curve_table(
    curve: Sequence[tuple[Mapping[str, Sequence[Labels]], Mapping[str, _Kept]]],
) -> str:
    lines = [
        "| compilations | labels | mean share that trees keep |",
        "|---|---|---|",
    ]
    for drawn, kept in curve:
        told = [one for one in kept.values() if one.best >= _LEAST_BYTES]
        if told:
            mean = np.mean([one.trees / one.best for one in told])
            files = [one for own in drawn.values() for one in own]
            compilations = sum(one.compilations for one in files)
            labels = sum(len(one.keys) for one in files)
            lines.append(f"| {compilations:,} | {labels:,} | {100 * mean:+.0f}% |")
    return "\n".join(lines)
