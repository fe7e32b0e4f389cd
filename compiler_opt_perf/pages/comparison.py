# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons of policies with the default, and curves of their trainings, as one HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.figure

from compiler_opt_perf.compare.comparison import Comparison
from compiler_opt_perf.compare.comparison_tables import (
    COLUMNS,
    agreement,
    cells,
    compile_time,
    weighting,
)
from compiler_opt_perf.compare.linked import LinkedPrograms, table, title
from compiler_opt_perf.compare.summary import LeftOut, SummaryRow, summarise
from compiler_opt_perf.compare.training_run import Point
from compiler_opt_perf.pages import page

# Columns of a training curve, changes against the default's cost, and what they are called in the
# plot.
_CURVES = {
    "candidates_mean": "candidates, mean",
    "validation_of_mean": "mean weights, validation",
    "validation_of_fittest": "fittest candidate, validation",
}


def _bars(rows: Sequence[SummaryRow]) -> str:
    """Cost of each module: by the score if there are scores, else by the text size."""
    scored = any(row.score is not None for row in rows)
    changes = []
    for row in rows:
        change = row.score if scored else row.text
        if change is not None:
            changes.append((page.literal(row.name), 100 * change.value))
    changes.sort(key=lambda pair: pair[1])
    figure = matplotlib.figure.Figure(figsize=(8, 0.22 * len(changes) + 1), layout="constrained")
    axes = figure.subplots()
    colours = ["tab:green" if change <= 0 else "tab:red" for _, change in changes]
    axes.barh([name for name, _ in changes], [change for _, change in changes], color=colours)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(f"{'RegAllocScore' if scored else 'text size'} against the default, %")
    axes.tick_params(axis="y", labelsize=7)
    return page.svg(figure)


def _curve(points: Sequence[Point]) -> str:
    figure = matplotlib.figure.Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    for key, label in _CURVES.items():
        changes = [(point.step, point.values.get(key)) for point in points]
        known = [(generation, 100 * change) for generation, change in changes if change is not None]
        if known:
            axes.plot(*zip(*known, strict=True), marker=".", label=label)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xlabel("generation")
    axes.set_ylabel("cost against the default, %")
    axes.legend()
    return page.svg(figure)


@dataclass(frozen=True)
class _Section:
    title: str
    modules: list[list[str]]
    programs: list[list[str]]
    total: list[str]
    notes: list[str]
    left_out: tuple[LeftOut, ...]
    bars: str
    curve: str | None


def write_page(
    comparisons: Sequence[Comparison],
    curves: dict[str, list[Point]],
    output: Path,
    programs: Sequence[LinkedPrograms] = (),
) -> None:
    """Writes one HTML page with tables and plots for each comparison.

    Args:
      programs: linked with policies and without; their tables come first.
      curves: training curves by problem; a problem without one has no such plot.

    Raises:
      FileWriteError: the disk is full.
    """
    sections = []
    for comparison in comparisons:
        curve = curves.get(comparison.problem)
        summary = summarise(comparison)
        sections.append(
            _Section(
                title=f"{comparison.problem} against default ({comparison.level})",
                modules=[cells(row) for row in summary.modules],
                programs=[cells(row) for row in summary.programs],
                total=cells(summary.total),
                notes=[
                    compile_time(comparison, summary),
                    weighting(summary),
                    agreement(comparison.modes),
                ],
                left_out=summary.left_out,
                bars=_bars(summary.modules),
                curve=_curve(curve) if curve else None,
            )
        )
    linked = [(title(one), *table(one), one.failed) for one in programs]
    values = {"columns": list(COLUMNS), "sections": sections, "linked": linked}
    page.write_page("comparison.html.j2", output, values)
