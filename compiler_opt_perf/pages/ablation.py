# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each kind of PMU data adds, as a plot (cop study ablation --plot=)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np

from compiler_opt_perf.pages import page


def write_plot(path: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes an SVG file with a field for each column of the table.

    A dot is the mean over the seeds, a line through it reaches from the least to the largest.

    Args:
      results: by column, its `programs`, and by arm the `changes` of the cost, one a seed, if any.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    figure = matplotlib.figure.Figure(figsize=(3.2 * len(results), 2.6), layout="constrained")
    fields = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
    for axes, (name, column) in zip(fields, results.items(), strict=True):
        arms = column["changes"]
        known = {place: own for place, own in enumerate(arms.values()) if own}
        percent = [100 * np.array(changes) for changes in known.values()]
        means = [100 * np.expm1(np.mean(np.log1p(changes))) for changes in known.values()]
        places = list(known)
        axes.axvline(0, color="black", linewidth=0.5)
        axes.hlines(places, list(map(np.min, percent)), list(map(np.max, percent)), linewidth=1.5)
        axes.plot(means, places, "o", markersize=4)
        axes.set_title(f"{page.literal(name)}; programs: {len(column['programs'])}", fontsize=8)
        axes.set_xlabel("change, %", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_yticks(range(len(arms)), list(map(page.literal, arms)))
    # The fields share the axis.
    fields[0].invert_yaxis()
    page.write_svg(figure, path)
