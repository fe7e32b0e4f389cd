# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How evaluators rank variants of programs, as one HTML page and a plot (benchmarks rank)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.figure
import numpy as np

from compiler_opt_perf.compare.ranking import JUDGED, Ranked, results, tables
from compiler_opt_perf.cost.ranking import Measured
from compiler_opt_perf.pages import page
from compiler_opt_perf.run.files import write_json, write_text

_PLOTTED = ("regalloc-score", "count", "mca", JUDGED)


def write(programs: Sequence[Ranked], folder: Path) -> str:
    """Writes results.json, report.md, report.html and rank.svg; returns the tables in Markdown.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    measured = {program.name: Measured(program.seconds, program.layouts) for program in programs}
    found = results(programs, measured)
    write_json(folder / "results.json", found)
    shown = tables(found)
    text = "\n".join(table.markdown() for table in shown)
    write_text(folder / "report.md", text)
    plot = page.svg(_scatter(programs, measured))
    write_text(folder / "rank.svg", '<?xml version="1.0" encoding="utf-8"?>\n' + plot)
    values = {"tables": shown, "plot": plot}
    page.write_page("ranking.html.j2", folder / "report.html", values)
    return text


def _scatter(
    programs: Sequence[Ranked], measured: Mapping[str, Measured]
) -> matplotlib.figure.Figure:
    """Predicted against measured, a row for each program and a column for each evaluator."""
    figure = matplotlib.figure.Figure(
        figsize=(2.6 * len(_PLOTTED), 2.4 * len(programs)), layout="constrained"
    )
    grid = figure.subplots(len(programs), len(_PLOTTED), squeeze=False)
    for row, program in zip(grid, programs, strict=True):
        times = measured[program.name]
        centre = 100 * np.expm1(times.log_time - times.log_time[0])
        low = 100 * np.expm1(times.low - times.log_time[0])
        high = 100 * np.expm1(times.high - times.log_time[0])
        errors = np.maximum([centre - low, high - centre], 0)
        for axes, evaluator in zip(row, _PLOTTED, strict=True):
            costs = program.predictions[evaluator]
            axes.errorbar(
                100 * (costs / costs[0] - 1), centre, errors, fmt=".", markersize=4, linewidth=0.7
            )
            tau = times.resolved_tau(costs).value
            axes.set_title(f"{program.name}: {evaluator}, τ {tau:.2f}", fontsize=8)
            axes.tick_params(labelsize=7)
        row[0].set_ylabel("measured, %", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("predicted, %", fontsize=8)
    return figure
