# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons as tables of text."""

from collections.abc import Sequence

from compiler_opt_perf.compare.comparison import Comparison
from compiler_opt_perf.compare.summary import CostChange, Summary, SummaryRow, summarise
from compiler_opt_perf.run.table import NOTHING, percent, share, terminal

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

# How many names of left-out items a terminal shows; the file has all.
_SHOWN_NAMES = 3


def _percent(change: CostChange | None) -> str:
    return NOTHING if change is None else percent(change.value, change.interval)


def cells(row: SummaryRow) -> list[str]:
    """The row's name and what the `COLUMNS` say of it."""
    return [
        row.name,
        f"{row.text_default:,}",
        f"{row.text_policy:,}",
        _percent(row.text),
        _percent(row.score),
        f"{row.decisions:,}",
        share(row.with_pmu, row.decisions),
        share(row.differing, row.decisions),
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


def _left_out(reason: str, names: Sequence[str]) -> str:
    """A line that names what is left out."""
    shown = [*names[:_SHOWN_NAMES], *["..."] * (len(names) > _SHOWN_NAMES)]
    return f"Left out: {len(names)} {reason} ({', '.join(shown)})"


def describe(comparison: Comparison) -> str:
    """Tables of modules and programs, with notes on how to read them."""
    summary = summarise(comparison)
    numbers = range(1, len(COLUMNS) + 1)
    title = f"{comparison.problem}: cost against default ({comparison.level}), negative is better"
    modules = terminal(("module", *COLUMNS), map(cells, summary.modules), numbers, title=title)
    programs = terminal(
        ("program", *COLUMNS),
        map(cells, summary.programs),
        numbers,
        title="geometric means [95% interval]",
        total=cells(summary.total),
    )
    lines = (
        compile_time(comparison, summary),
        *([weighting(summary)] if any(module.functions for module in comparison.modules) else []),
        *(_left_out(reason, names) for reason, names in summary.left_out.items()),
        agreement(comparison.modes),
    )
    return f"{modules}\n{programs}\n" + "".join(f"{line}\n" for line in lines)
