# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The history of the gate as one self-contained HTML page."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.figure
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from compiler_opt_perf.compare.check_tables import value
from compiler_opt_perf.compare.history import HistoryEntry, Total
from compiler_opt_perf.compare.metrics import METRICS
from compiler_opt_perf.pages import page
from compiler_opt_perf.run.symbol_names import printable

# What is the same each time, or has a trend that is worth a look.
_PLOTTED = (
    *("text", "linked", "instructions", "cycles", "score", "effort", "memory", "with-pmu"),
    "differing",
)
# Name, marker and colour of an event.
_PASSES = ("passes", "o", "tab:green")
_WORSE = ("worse", "X", "tab:red")
_ACCEPTED = ("accepted", "s", "tab:blue")
# By metric: 1 if more is worse, -1 if less is, 0 if any change is.
_WORSE_SIDE = {one.name: one.worse for one in METRICS}
# Half of the width of an event's baseline and limits, in events.
_HALF = 0.35
_COLUMNS = ("event", "date", "", "problem", "verdict", "changed", "worse", "reason")


def write_page(events: Sequence[HistoryEntry], output: Path) -> None:
    """Writes a plot for each problem and metric, and a table of the events, the latest first.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    problems = dict.fromkeys(event.problem for event in events)
    plots = [
        (f"{problem}: {metric}", plot)
        for problem in problems
        for metric in _PLOTTED
        for plot in [_plot([one for one in events if one.problem == problem], metric)]
        if plot
    ]
    rows = [_row(event) for event in reversed(events)]
    values = {"title": "History of the gate", "plots": plots, "columns": _COLUMNS, "rows": rows}
    page.write_page("gate.html.j2", output, values)


def _plot(events: Sequence[HistoryEntry], metric: str) -> str:
    """What was measured, by the event's number, with baseline and limit; SVG, or empty."""
    points = [
        (event.number, one, event)
        for event in events
        for one in event.totals
        if one.metric == metric
    ]
    if not points:
        return ""
    figure = matplotlib.figure.Figure(figsize=(9, 2.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([n for n, *_ in points], [one.after for _, one, _ in points], color="tab:gray")
    _mark_levels(axes, [(n, one.before) for n, one, _ in points], "tab:blue", "baseline")
    _mark_levels(axes, [(n, y) for n, one, _ in points for y in _limits(one)], "tab:red", "limit")
    groups: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for number, one, event in points:
        mark = _WORSE if one.verdict == "worse" else _PASSES
        groups.setdefault(_ACCEPTED if event.kind == "accept" else mark, []).append(
            (number, one.after)
        )
    for (label, marker, colour), marked in sorted(groups.items()):
        axes.plot(*zip(*marked, strict=True), marker, color=colour, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlim(points[0][0] - 0.5, points[-1][0] + 0.5)
    axes.set_xlabel("event")
    axes.set_ylabel(points[0][1].unit)
    axes.legend(fontsize=7)
    return page.svg(figure)


def _mark_levels(axes: Axes, levels: Sequence[tuple[int, float]], colour: str, label: str) -> None:
    """Draws a short line at each value, at its event's number."""
    if levels:
        begins, ends = ([n + side for n, _ in levels] for side in (-_HALF, _HALF))
        axes.hlines(
            [y for _, y in levels], begins, ends, color=colour, linestyle="dashed", label=label
        )


def _limits(one: Total) -> list[float]:
    """The values from which on the metric is worse."""
    if one.allowed is None:
        return []
    side = _WORSE_SIDE.get(one.metric, 0)
    return [one.before + sign * one.allowed for sign in ((side,) if side else (-1, 1))]


def _row(event: HistoryEntry) -> list[str]:
    worse = [
        f"{one.metric} {value(one.before, one.unit)} to {value(one.after, one.unit)}"
        for one in event.totals
        if one.verdict == "worse"
    ]
    cells = [str(event.number), event.date, event.kind, event.problem, event.verdict]
    cells += [", ".join(event.changed) or "nothing", "; ".join(worse), event.reason]
    return list(map(printable, cells))
