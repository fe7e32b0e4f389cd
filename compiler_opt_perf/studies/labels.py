# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What do labels of single decisions teach about programs that were never seen?

Of a training on labels (training.dataset_aggregation), each training program is left out in turn:
trees and a network learn from the labels of the others. What they would save by deciding otherwise
than the compiler, label by label, is compared with what the best of both ways would save, in bytes.
Decisions that the policy would have come to by itself are not among them: this is about learning,
the training's own test about results.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from absl import logging

from compiler_opt_perf.execution.seeds import derive_seed
from compiler_opt_perf.policies.network import to_grid
from compiler_opt_perf.training import cost_sensitive
from compiler_opt_perf.training.dataset_aggregation import PROBLEM, words
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
    network: float


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
    kept = {name: _leave_out(name, programs, recipe) for name in programs}
    return "\n".join([_programs_table(programs, kept), "", _curve_table(programs, recipe), ""])


def _draw(modules: Sequence[Labels], share: float, seed: int) -> list[Labels]:
    """Modules, drawn at random, that took a share of all compilations.

    A smaller share is a part of a larger one.
    """
    order = np.random.default_rng(derive_seed(seed, "share")).permutation(len(modules))
    spent = np.cumsum([modules[i].compilations for i in order])
    return [modules[i] for i in np.sort(order[spent <= share * spent[-1]])]


def _leave_out(name: str, programs: Mapping[str, Sequence[Labels]], recipe: Recipe) -> _Kept:
    """Learns from the labels of the other programs."""
    logging.info("without %s", name)
    others = [one for other, own in programs.items() if other != name for one in own]
    inputs, gain, numbers = labelled_rows(PROBLEM, others)
    trees = cost_sensitive.Trees.fit(PROBLEM, inputs, gain, numbers, recipe.trees, recipe.seed)
    unseen, saved, _ = labelled_rows(PROBLEM, programs[name])
    logged = logged_rows(PROBLEM, others)
    network, weights = cost_sensitive.student(trees, PROBLEM, logged, recipe.network, recipe.seed)
    otherwise = network.decide(to_grid(weights), unseen) != unseen[PROBLEM.default_feature]
    return _Kept(
        float(saved[saved > 0].sum()),
        float(saved[trees.otherwise(unseen) > 0.5].sum()),
        float(saved[otherwise].sum()),
    )


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


def _curve_table(programs: Mapping[str, Sequence[Labels]], recipe: Recipe) -> str:
    """Of all programs, each left out in turn, the share that trees keep, by kind of decision."""
    # Those that keep too little to be learnt, too.
    settings = msgspec.structs.replace(recipe.trees, least_share=-math.inf)
    modules = [one for own in programs.values() for one in own]
    curve: list[tuple[int, int, dict[int, float]]] = []
    for share in _SHARES:
        logging.info("%g%% of the compilations", 100 * share)
        drawn = _draw(modules, share, recipe.seed)
        if drawn:
            rows = labelled_rows(PROBLEM, drawn)
            trees = cost_sensitive.Trees.fit(PROBLEM, *rows, settings, recipe.seed)
            spent = sum(one.compilations for one in drawn)
            curve.append((spent, sum(len(one.keys) for one in drawn), trees.kept))
    kinds = sorted(curve[-1][2])
    heads = [words(cost_sensitive.KINDS[kind]) for kind in kinds]
    lines = [
        f"| compilations | labels | {' | '.join(heads)} |",
        "|---|---|" + "---|" * len(kinds),
    ]
    for spent, labels, kept in curve:
        cells = [f"{100 * kept[kind]:+.0f}%" if kind in kept else "–" for kind in kinds]
        lines.append(f"| {spent:,} | {labels:,} | {' | '.join(cells)} |")
    return "\n".join(lines)
