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

# Shares of the labels, for the curve.
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
    kept = {
        share: {name: _leave_out(name, programs, recipe, share) for name in programs}
        for share in _SHARES
    }
    tables = [_programs_table(programs, kept[1.0]), "", _curve_table(programs, kept), ""]
    return "\n".join(tables)


def _leave_out(
    name: str, programs: Mapping[str, Sequence[Labels]], recipe: Recipe, share: float
) -> _Kept:
    """Learns from the labels of the other programs, or from a share of them."""
    logging.info("without %s, %g%% of the labels", name, 100 * share)
    others = [one for other, own in programs.items() if other != name for one in own]
    inputs, gain, numbers = labelled_rows(PROBLEM, others)
    rows = np.arange(len(gain))
    if share < 1:
        draw = np.random.default_rng(derive_seed(recipe.seed, "share", str(share)))
        rows = np.sort(draw.choice(rows, round(share * len(rows)), replace=False))
    trees = cost_sensitive.Trees.fit(
        PROBLEM,
        {feature: values[rows] for feature, values in inputs.items()},
        gain[rows],
        numbers[rows],
        recipe.trees,
        recipe.seed,
    )
    unseen, saved, _ = labelled_rows(PROBLEM, programs[name])
    best = float(saved[saved > 0].sum())
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
    programs: Mapping[str, Sequence[Labels]], curve: Mapping[float, Mapping[str, _Kept]]
) -> str:
    labels = sum(len(one.keys) for own in programs.values() for one in own)
    lines = ["| labels of all programs | mean share that trees keep |", "|---|---|"]
    for share, kept in curve.items():
        told = [one for one in kept.values() if one.best >= _LEAST_BYTES]
        if told:
            mean = np.mean([one.trees / one.best for one in told])
            lines.append(f"| {share * labels:,.0f} | {100 * mean:+.0f}% |")
    return "\n".join(lines)
