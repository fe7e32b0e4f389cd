# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each kind of PMU data adds, as a plot (cop study ablation --plot=)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.axes
import matplotlib.figure
import numpy as np

from compiler_opt_perf.pages import page


def write_plot(path: Path, results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Writes an SVG file with a row of fields for each table, and a field for each of its columns.

    Fields of a row have one scale. A dot is the mean over the seeds, a line through it its 95%
    interval over programs, or the seeds' range where there is none.

    Args:
      results: by table and column, its `programs`, and by arm the `changes` of the cost, one a
        seed, if any, and the ends of the `interval`, or None.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    width = max(map(len, results.values()))
    size = (3.2 * width, 2.6 * len(results))
    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    fields = figure.subplots(len(results), width, squeeze=False, sharey=True, sharex="row")
    for row, (title, columns) in zip(fields, results.items(), strict=True):
        for axes in row[len(columns) :]:
            axes.set_axis_off()
        for axes, (reward, column) in zip(row, columns.items(), strict=False):
            _draw(axes, column)
            head = f"{page.literal(title)},\nby {page.literal(reward)}"
            axes.set_title(f"{head}; programs: {len(column['programs'])}", fontsize=8)
    # The fields share the axis.
    fields[0][0].invert_yaxis()
    page.write_svg(figure, path)


def _draw(axes: matplotlib.axes.Axes, column: Mapping[str, Any]) -> None:
    arms = column["changes"]
    axes.axvline(0, color="black", linewidth=0.5)
    for place, (arm, changes) in enumerate(arms.items()):
        if changes:
            ends = column["interval"][arm] or (min(changes), max(changes))
            axes.hlines(place, 100 * ends[0], 100 * ends[1], linewidth=1.5)
            axes.plot([100 * np.expm1(np.mean(np.log1p(changes)))], [place], "C0o", markersize=4)
    axes.set_xlabel("change, %", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_yticks(range(len(arms)), list(map(page.literal, arms)))
