# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shows comparisons to people: a table on the terminal and a self-contained HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import matplotlib.figure
from rich.console import Console
from rich.table import Table

from compiler_opt_perf.execution import page
from compiler_opt_perf.execution.json_text import parse_json
from compiler_opt_perf.report.comparison import (
    FORMAT,
    VERSION,
    Comparison,
    ModuleComparison,
    ratio,
)

_COLUMNS = (
    "module",
    "text default",
    "text policy",
    "text",
    "score",
    "decisions",
    "with PMU data",
    "differ from default",
    "compile time",
)

# No size, score or time is.
_LARGEST = 2.0**64

# Columns of a training curve, and what they are called in the plot.
_CURVES = {
    "fitness_mean": "candidates, mean",
    "validation": "mean weights, validation",
    "validation_fittest": "fittest candidate, validation",
}


class ReportError(Exception):
    """A comparison or a training curve that cannot be read."""


def _require_type(row: dict[str, Any], name: str, kind: Any) -> None:
    """Checks a field; integers are floats, too, and both stay within what a plot can show."""
    value = row.get(name)
    allowed = get_args(kind) or (kind,)
    if value is None and type(None) in allowed:
        return
    number = float in allowed or int in allowed
    if type(value) not in allowed and not (float in allowed and type(value) is int):
        raise ValueError(f"{name}: found {str(value)[:40]!r}")
    if number and value is not None and not abs(value) < _LARGEST:
        raise ValueError(f"{name}: found {str(value)[:40]}, which is no measure")


def read_comparison(path: Path) -> Comparison:
    """Reads what `Comparison.to_json` wrote. Raises ReportError that names the file."""
    try:
        value = parse_json(path.read_bytes())
        if (value["format"], value["version"]) != (FORMAT, VERSION):
            raise ValueError(f"expected format {FORMAT}, version {VERSION}")
        names = {field.name for field in fields(ModuleComparison)}
        modules = []
        for row in value["modules"]:
            if set(row) != names:
                raise ValueError(f"module {row.get('name')}: expected the fields {sorted(names)}")
            for field in fields(ModuleComparison):
                _require_type(row, field.name, get_type_hints(ModuleComparison)[field.name])
            modules.append(ModuleComparison(**row))
        if not modules:
            raise ValueError("no module")
        for name in ("problem", "level"):
            _require_type(value, name, str)
        return Comparison(value["problem"], value["level"], tuple(modules))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportError(
            f"{path}: not a comparison ({error}); write it with `cop compare`"
        ) from error


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Reads a training run's `curve.jsonl`. Raises ReportError that names the line."""
    rows = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ReportError(
            f"{path}: {error.strerror}; name a folder that `cop train` wrote"
        ) from error
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line)
            # Generation 0, the warm start, has no candidates; others may have none that works.
            rows.append({key: row.get(key) for key in _CURVES})
            for key in _CURVES:
                _require_type(row, key, float | None)
            _require_type(row, "generation", int)
            rows[-1]["generation"] = row["generation"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReportError(f"{path}:{number}: not a row of a training curve: {error}") from error
    return rows


def _percent(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{100 * (value - 1):+.{digits}f}%"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "–"


def _total_cells(comparison: Comparison) -> list[str]:
    cells = _cells(comparison.total())
    cells[_COLUMNS.index("score")] = _percent(comparison.score_ratio())
    return cells


def _cells(row: ModuleComparison) -> list[str]:
    slower = ratio(row.seconds_policy, row.seconds_default)
    return [
        row.name,
        f"{row.text_default:,}",
        f"{row.text_policy:,}",
        _percent(ratio(row.text_policy, row.text_default)),
        _percent(ratio(row.score_policy, row.score_default)),
        f"{row.decisions:,}",
        _share(row.with_pmu, row.decisions),
        _share(row.differing, row.decisions),
        "–" if slower is None else f"×{slower:.2f}",
    ]


def print_comparison(comparison: Comparison) -> None:
    """Prints the table, the total last."""
    table = Table(title=f"{comparison.problem}: policy against default ({comparison.level})")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "module" else "right")
    for module in comparison.modules:
        table.add_row(*_cells(module))
    table.add_section()
    table.add_row(*_total_cells(comparison))
    Console(width=None if Console().is_terminal else 160).print(table)


def _bars(comparison: Comparison) -> str:
    """Change per module: of the score where the problem has one, else of the text size."""
    scored = comparison.modules[0].score_default is not None
    changes = []
    for row in comparison.modules:
        change = (
            ratio(row.score_policy, row.score_default)
            if scored
            else ratio(row.text_policy, row.text_default)
        )
        if change is not None:
            # Text between two dollars would be a formula.
            changes.append((row.name.replace("$", r"\$"), 100 * (change - 1)))
    changes.sort(key=lambda pair: pair[1])
    figure = matplotlib.figure.Figure(figsize=(8, 0.22 * len(changes) + 1), layout="constrained")
    axes = figure.subplots()
    colours = ["tab:green" if change <= 0 else "tab:red" for _, change in changes]
    axes.barh([name for name, _ in changes], [change for _, change in changes], color=colours)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(f"{'RegAllocScore' if scored else 'text size'} against the default, %")
    axes.tick_params(axis="y", labelsize=7)
    return page.svg(figure)


def _curve(rows: Sequence[dict[str, Any]]) -> str:
    figure = matplotlib.figure.Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    for key, label in _CURVES.items():
        points = [(row["generation"], 100 * row[key]) for row in rows if row[key] is not None]
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), marker=".", label=label)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xlabel("generation")
    axes.set_ylabel("gain over the default, %")
    axes.legend()
    return page.svg(figure)


@dataclass(frozen=True)
class _Section:
    title: str
    rows: list[list[str]]
    total: list[str]
    bars: str
    curve: str | None


def write_page(
    comparisons: Sequence[Comparison], curves: dict[str, list[dict[str, Any]]], output: Path
) -> None:
    """Writes one HTML page with a table and plots for each comparison.

    Args:
      curves: training curves by problem; a problem without one has no such plot.

    Raises:
      FileWriteError: the disk is full.
    """
    sections = []
    for comparison in comparisons:
        curve = curves.get(comparison.problem)
        sections.append(
            _Section(
                title=f"{comparison.problem} against default ({comparison.level})",
                rows=[_cells(module) for module in comparison.modules],
                total=_total_cells(comparison),
                bars=_bars(comparison),
                curve=_curve(curve) if curve else None,
            )
        )
    values = {"columns": _COLUMNS, "sections": sections}
    page.write_page("compiler_opt_perf.report", "comparison.html.j2", output, values)
