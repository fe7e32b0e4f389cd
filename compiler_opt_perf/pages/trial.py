# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A trial of a user's program as one self-contained HTML page."""

from pathlib import Path

from compiler_opt_perf.pages import page
from compiler_opt_perf.trial.result import Trial, TrialRun, describe


def write_page(trial: Trial, output: Path) -> None:
    """Writes the verdict, and a plot of the times in each run.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    values = {
        "title": Path(trial.source).name,
        "verdict": trial.verdict.reasons,
        "table": describe(trial),
        "plots": [_bars(trial, number, run) for number, run in enumerate(trial.runs)],
    }
    page.write_page("trial.html.j2", output, values)


def _bars(trial: Trial, number: int, run: TrialRun) -> str:
    """Changes of time by build, with their intervals; the first bar is what chance does."""
    changes = {"plain, other layouts": run.control}
    changes |= {way.name: way.runs[number].time_change for way in trial.ways[1:]}
    label = f"change of time against plain in %, --{run.flag}"
    figure, axes = page.bar_plot(list(changes), label)
    for place, change in enumerate(changes.values()):
        ends = [[100 * (change.value - change.low)], [100 * (change.high - change.value)]]
        color = "tab:gray" if not place else "tab:green" if change.value < 0 else "tab:red"
        axes.barh(place, 100 * change.value, xerr=ends, color=color, capsize=2)
    axes.axvline(0, color="black", linewidth=0.5)
    return page.svg(figure)
