# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons as tables of text."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from compiler_opt_perf.compare.comparison import Comparison
from compiler_opt_perf.compare.summary import CostChange, LeftOut, Row, Summary, summarise

COLUMNS = (
    "text default",
    "text policy",
    "text",
    "score",
    "decisions",
    "with PMU data",
    "differ from default",
    "compile time",
)

# Columns of text that is not for a terminal.
_WIDTH = 180
# How many names of left-out items a terminal shows; the file has all.
_SHOWN_NAMES = 3


def _percent(change: CostChange | None) -> str:
    if change is None:
        return "–"
    text = f"{100 * change.value:+.2f}%"
    if change.low is None or change.high is None:
        return text
    return f"{text} [{100 * change.low:+.2f}, {100 * change.high:+.2f}]"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "–"


def cells(row: Row) -> list[str]:
    """The row's name and what the `COLUMNS` say of it."""
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


def agreement(modes: Sequence[str]) -> str:
    """A sentence on the agreement of the compiler's modes."""
    if len(modes) < 2:
        return "The compiler's modes were not compared."
    names = f"{', '.join(modes[:-1])} and {modes[-1]}".capitalize()
    return f"{names} mode took the same decisions and gave the same object files."


def compile_time(comparison: Comparison, summary: Summary) -> str:
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


def weighting(summary: Summary) -> str:
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
    console = Console(width=None if Console().is_terminal else _WIDTH, color_system=None)
    title = f"{comparison.problem}: cost against default ({comparison.level}), negative is better"
    modules = _table(title, "module", summary.modules)
    programs = _table("geometric means [95% interval]", "program", summary.programs)
    programs.add_section()
    programs.add_row(*map(escape, cells(summary.total)))
    with console.capture() as tables:
        for table in (modules, programs):
            console.print(table)
    lines = (
        compile_time(comparison, summary),
        *([weighting(summary)] if any(module.functions for module in comparison.modules) else []),
        *map(_names, summary.left_out),
        agreement(comparison.modes),
    )
    return tables.get() + "\n".join(lines) + "\n"


def _table(title: str, first: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title)
    for column in (first, *COLUMNS):
        table.add_column(column, justify="left" if column == first else "right")
    for row in rows:
        table.add_row(*map(escape, cells(row)))
    return table
