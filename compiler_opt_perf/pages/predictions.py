# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predicted cycles against measured ones, as a plot (cop cost eval --plot=)."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib.figure
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.pages import page

Floats = npt.NDArray[np.float64]

# Of the diagonal: what lies outside is off by more than this factor.
_FACTOR = 2.0
_CELLS = 60


def write_plot(
    path: Path, title: str, points: Mapping[str, tuple[Floats, Floats]], of: str = "blocks"
) -> None:
    """Writes an SVG file with a field for each collection of blocks, or of other things.

    Both axes are logarithmic; the darker a cell, the more it holds. Beside the diagonal stand lines
    at half and at double of what was measured.

    Args:
      title: of the figure.
      points: predicted and measured cycles, above 0, by collection; NaN where there is none.
      of: what they are of, in the plural.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    figure = matplotlib.figure.Figure(figsize=(4.2 * len(points), 4.2), layout="constrained")
    for axes, (name, (predicted, measured)) in zip(
        figure.subplots(1, len(points), squeeze=False)[0], points.items(), strict=True
    ):
        known = np.isfinite(predicted) & (predicted > 0)
        both = measured[known], predicted[known]
        axes.set_title(f"{name}: {len(both[0]):,} {of}", fontsize=9)
        axes.set_xlabel("measured cycles", fontsize=8)
        axes.set_ylabel("predicted cycles", fontsize=8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.tick_params(labelsize=7)
        if not len(both[0]):
            continue
        ends = np.array([min(map(np.min, both)), max(map(np.max, both))])
        axes.hexbin(*both, gridsize=_CELLS, xscale="log", yscale="log", bins="log", cmap="Blues")
        for factor, width in ((1.0, 1.0), (_FACTOR, 0.5), (1 / _FACTOR, 0.5)):
            axes.plot(ends, factor * ends, color="black", linewidth=width)
    figure.suptitle(title, fontsize=9)
    page.write_svg(figure, path)
