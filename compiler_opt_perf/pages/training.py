# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A training, ended or not, as one self-contained HTML page."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.figure
import numpy as np
from matplotlib.ticker import MaxNLocator

from compiler_opt_perf.compare import training_tables as tables
from compiler_opt_perf.compare.training_run import CHANGE, Point, TrainingRun, unit_of
from compiler_opt_perf.pages import page
from compiler_opt_perf.train.differences import Differences
from compiler_opt_perf.train.linked import COLUMNS

# Rows of the table of decisions.
_SITES = 200
# Powers of ten, and parts of one.
_DECADES, _PARTS = 4, 4


def write_page(run: TrainingRun, differences: Differences | None, output: Path) -> None:
    """Writes curves, labels, results, settings, and what the policy does differently.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    sections = []
    if differences is not None:
        rows, _ = tables.sites(differences, _SITES)
        sections = [
            ("By program", tables.MODULE_COLUMNS, tables.modules(differences, "program"), ""),
            ("By module", tables.MODULE_COLUMNS, tables.modules(differences, "module"), ""),
            ("By decision", tables.SITE_COLUMNS, rows, tables.summary(differences, len(rows))),
        ]
    values = {
        "title": f"Training {run.path.absolute().name}: {run.problem}",
        "summary": tables.headline(run),
        "curve": curve_plot(run.curve) if run.curve else "",
        "latest": tables.latest(run),
        "columns": COLUMNS,
        "programs": tables.programs(run),
        "labels": tables.labels(run),
        "histogram": _histogram(run) if run.labels else "",
        "differences": sections,
        "failed": sorted(differences.failed.items()) if differences else [],
        "settings": tables.settings(run),
    }
    page.write_page("training.html.j2", output, values)


def curve_plot(points: Sequence[Point]) -> str:
    """The costs of each generation as SVG; other fields of a curve have other units."""
    figure = matplotlib.figure.Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots()
    names = dict.fromkeys(
        name for point in points for name in point.values if unit_of(name) == CHANGE
    )
    for name in names:
        known = [(one.step, 100 * one.values[name]) for one in points if name in one.values]
        axes.plot(*zip(*known, strict=True), marker=".", label=page.literal(name))
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xlabel("generation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("cost against the default, %")
    if names:
        axes.legend(fontsize=7)
    return page.svg(figure)


def _histogram(run: TrainingRun) -> str:
    """How many labels there are of which difference, on a logarithmic scale both ways; SVG."""
    figure = matplotlib.figure.Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots()
    # An odd number of bins: that of 0 is in the middle.
    edges = np.linspace(-_DECADES, _DECADES, 2 * _DECADES * _PARTS + 2)
    for number, own in run.labels.items():
        # 0 in the middle, 9 bytes one decade away from it.
        places = np.clip(np.sign(own) * np.log10(1 + np.abs(own)), -_DECADES, _DECADES)
        counts, _ = np.histogram(places, edges)
        axes.stairs(counts, edges, label=f"round {number}", fill=number == 0, alpha=0.6)
    axes.set_yscale("symlog")
    ticks = range(-_DECADES, _DECADES + 1)
    axes.set_xticks(ticks, [f"{np.sign(t) * (10.0 ** abs(t) - 1):+,.0f}" for t in ticks])
    axes.set_xlabel("bytes that the other decision changes; negative: it would be better")
    axes.set_ylabel("labels")
    axes.legend(fontsize=7)
    return page.svg(figure)
