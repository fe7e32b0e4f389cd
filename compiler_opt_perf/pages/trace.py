# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics of a block trace as one self-contained HTML page."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.figure
import numpy as np

from compiler_opt_perf.pages import page
from compiler_opt_perf.trace.statistics import HotFunction, Statistics


def write_page(statistics: Statistics, output: Path, top: int) -> None:
    """Writes the summary, the `top` most executed functions, and plots.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    hot = statistics.functions[:top]
    values = {
        "title": statistics.trace.path.name,
        "summary": statistics.summary(),
        "functions": hot,
        "bars": _bars(hot),
        "coverage": _coverage(statistics),
    }
    page.write_page("trace.html.j2", output, values)


def _bars(hot: Sequence[HotFunction]) -> str:
    """Share of the most executed functions; SVG."""
    names = [function.name for function in hot]
    figure, axes = page.bar_plot(names, "share of the executed blocks, %")
    axes.barh(range(len(hot)), [100 * function.share for function in hot])
    return page.svg(figure)


def _coverage(statistics: Statistics) -> str:
    """The share of the executions that the hottest blocks make up; SVG."""
    running = statistics.running
    figure = matplotlib.figure.Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(np.arange(1, len(running) + 1), 100 * running / max(1, statistics.total))
    axes.set_xscale("log")
    axes.set_xlabel("hottest blocks")
    axes.set_ylabel("share of executions, %")
    axes.grid(alpha=0.3)
    return page.svg(figure)
