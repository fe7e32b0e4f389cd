# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints comparisons as a table on the terminal and as a self-contained HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import matplotlib.figure
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from compiler_opt_perf.execution import page
from compiler_opt_perf.execution.files import read_input
from compiler_opt_perf.execution.json_text import Count, JsonError, decode
from compiler_opt_perf.report.comparison import Comparison
from compiler_opt_perf.report.summary import (
    FORMAT,
    VERSION,
    CostChange,
    LeftOut,
    Row,
    Summary,
    summarise,
)

_COLUMNS = (
    "text default",
    "text policy",
    "text",
    "score",
    "decisions",
    "with PMU data",
    "differ from default",
    "compile time",
)

_COMPARE = "write it with `cop compare`"
# What a plot can show.
_Change = Annotated[float, msgspec.Meta(gt=-(2.0**64), lt=2.0**64)]
# Columns of text that is not for a terminal.
_WIDTH = 180
# How many names of left-out items a terminal shows; the file has all.
_SHOWN_NAMES = 3

# Columns of a training curve, changes against the default's cost, and what they are called in the
# plot.
_CURVES = {
    "candidates_mean": "candidates, mean",
    "validation_of_mean": "mean weights, validation",
    "validation_of_fittest": "fittest candidate, validation",
}


class ReportError(Exception):
    """A comparison or a training curve that cannot be read."""


class CurvePoint(msgspec.Struct, frozen=True):
    """A row of a training curve: changes against the default's cost after a generation.

    Attributes:
      generation: 0 is the warm start, which has no candidates.
      validation_of_mean, candidates_mean, validation_of_fittest: None where not measured.
    """

    generation: Count
    validation_of_mean: _Change | None
    candidates_mean: _Change | None = None
    validation_of_fittest: _Change | None = None


def read_comparison(path: Path) -> Comparison:
    """Reads what `summary.to_json` wrote. Raises ReportError that names file and field."""
    try:
        comparison = decode(read_input(path), Comparison, path, (FORMAT, VERSION))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}; {_COMPARE}") from error
    except JsonError as error:
        raise ReportError(f"{error}; {_COMPARE}") from error
    for number, module in enumerate(comparison.modules):
        pairs = {len(module.compile_default), len(module.compile_policy)}
        times = (*module.compile_default, *module.compile_policy)
        if len(pairs) > 1 or pairs == {0} or not all(times):
            raise ReportError(
                f"{path}: $.modules[{number}]: compile times: expected pairs above 0; {_COMPARE}"
            )
    return comparison


def read_curve(path: Path) -> list[CurvePoint]:
    """Reads a training run's `curve.jsonl`. Raises ReportError that names the line."""
    try:
        lines = read_input(path).splitlines()
    except OSError as error:
        raise ReportError(
            f"{path}: {error.strerror}; name a folder that `cop train` wrote"
        ) from error
    try:
        return [decode(line, CurvePoint, f"{path}:{i}") for i, line in enumerate(lines, 1)]
    except JsonError as error:
        raise ReportError(
            f"{error}; name a folder that `cop train` of this version wrote"
        ) from error


def _percent(change: CostChange | None) -> str:
    if change is None:
        return "–"
    text = f"{100 * change.value:+.2f}%"
    if change.low is None or change.high is None:
        return text
    return f"{text} [{100 * change.low:+.2f}, {100 * change.high:+.2f}]"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "–"


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        f"{row.text_default:,}",
        f"{row.text_policy:,}",
        _percent(row.text),
        _percent(row.score),
        f"{row.decisions:,}",
        _share(row.with_pmu, row.decisions),
        _share(row.differing, row.decisions),
        _percent(row.compile_time),
    ]


def _agreement(modes: Sequence[str]) -> str:
    """A sentence on the agreement of the compiler's modes."""
    if len(modes) < 2:
        return "The compiler's modes were not compared."
    names = f"{', '.join(modes[:-1])} and {modes[-1]}".capitalize()
    return f"{names} mode took the same decisions and gave the same object files."


def _compile_time(comparison: Comparison, summary: Summary) -> str:
    """A sentence on how compile time was measured, and the smallest difference that it resolves."""
    change = summary.total.compile_time
    resolution = change.resolution if change else None
    told = (
        "pairs are too few for an interval"
        if resolution is None
        else f"in the total, differences of {100 * resolution:.2f}% or more are resolved"
    )
    how = f"{comparison.compile_time}, in random order (seed {comparison.seed})"
    return f"Compile time: {how}; {told}."


def _weighting(summary: Summary) -> str:
    """A sentence on the weights of functions' scores."""
    if summary.total.score is None:
        return "No function has scores to compare."
    if not summary.weighted:
        return "Scores: each function counts once."
    programs = ", ".join(summary.weighted)
    return f"Scores: functions of {programs} count as often as they were called, others once."


def _names(left_out: LeftOut) -> str:
    """A line that names what is left out."""
    names = ", ".join(left_out.names[:_SHOWN_NAMES])
    more = "" if len(left_out.names) <= _SHOWN_NAMES else ", ..."
    return f"Left out: {len(left_out.names)} {left_out.reason} ({names}{more})"


def describe(comparison: Comparison) -> str:
    """Tables of modules and programs, with notes on how to read them."""
    summary = summarise(comparison)
    console = Console(width=None if Console().is_terminal else _WIDTH)
    title = f"{comparison.problem}: cost against default ({comparison.level}), negative is better"
    modules = _table(title, "module", summary.modules)
    programs = _table("geometric means [95% interval]", "program", summary.programs)
    programs.add_section()
    programs.add_row(*map(escape, _cells(summary.total)))
    with console.capture() as tables:
        for table in (modules, programs):
            console.print(table)
    lines = (
        _compile_time(comparison, summary),
        *([_weighting(summary)] if any(module.functions for module in comparison.modules) else []),
        *map(_names, summary.left_out),
        _agreement(comparison.modes),
    )
    return tables.get() + "\n".join(lines) + "\n"


def _table(title: str, first: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title)
    for column in (first, *_COLUMNS):
        table.add_column(column, justify="left" if column == first else "right")
    for row in rows:
        table.add_row(*map(escape, _cells(row)))
    return table


def _bars(rows: Sequence[Row]) -> str:
    """Cost of each module: by the score if there are scores, else by the text size."""
    scored = any(row.score is not None for row in rows)
    changes = []
    for row in rows:
        change = row.score if scored else row.text
        if change is not None:
            # matplotlib takes text between two dollar signs for a formula.
            changes.append((row.name.replace("$", r"\$"), 100 * change.value))
    changes.sort(key=lambda pair: pair[1])
    figure = matplotlib.figure.Figure(figsize=(8, 0.22 * len(changes) + 1), layout="constrained")
    axes = figure.subplots()
    colours = ["tab:green" if change <= 0 else "tab:red" for _, change in changes]
    axes.barh([name for name, _ in changes], [change for _, change in changes], color=colours)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(f"{'RegAllocScore' if scored else 'text size'} against the default, %")
    axes.tick_params(axis="y", labelsize=7)
    return page.svg(figure)


def _curve(points: Sequence[CurvePoint]) -> str:
    figure = matplotlib.figure.Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    for key, label in _CURVES.items():
        changes = [(point.generation, getattr(point, key)) for point in points]
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
    comparisons: Sequence[Comparison], curves: dict[str, list[CurvePoint]], output: Path
) -> None:
    """Writes one HTML page with tables and plots for each comparison.

    Args:
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
                modules=[_cells(row) for row in summary.modules],
                programs=[_cells(row) for row in summary.programs],
                total=_cells(summary.total),
                notes=[
                    _compile_time(comparison, summary),
                    _weighting(summary),
                    _agreement(comparison.modes),
                ],
                left_out=summary.left_out,
                bars=_bars(summary.modules),
                curve=_curve(curve) if curve else None,
            )
        )
    values = {"columns": _COLUMNS, "sections": sections}
    page.write_page("compiler_opt_perf.report", "comparison.html.j2", output, values)
