# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons of policies with the default, by module and by program, as one HTML page."""

from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.compare.comparison import Comparison
from compiler_opt_perf.compare.comparison_tables import (
    COLUMNS,
    agreement,
    cells,
    compile_time,
    weighting,
)
from compiler_opt_perf.compare.summary import SummaryRow, summarise
from compiler_opt_perf.pages import page
from compiler_opt_perf.pages.sections import Section


def _bars(rows: Sequence[SummaryRow]) -> str:
    """Cost of each module: by the score if there are scores, else by the text size."""
    scored = any(row.score is not None for row in rows)
    known = [
        (100 * change.value, row.name)
        for row in rows
        if (change := row.score if scored else row.text) is not None
    ]
    known.sort(reverse=True)
    label = f"{'RegAllocScore' if scored else 'text size'} against the default, %"
    figure, axes = page.bar_plot([name for _, name in known], label)
    colours = ["tab:green" if change <= 0 else "tab:red" for change, _ in known]
    axes.barh(range(len(known)), [change for change, _ in known], color=colours)
    axes.axvline(0, color="black", linewidth=0.8)
    return page.svg(figure)


def write_page(
    comparisons: Sequence[Comparison], output: Path, sections: Sequence[Section] = ()
) -> None:
    """Writes one HTML page with a table and a plot for each section and each comparison.

    Args:
      sections: what comes before the comparisons.

    Raises:
      FileWriteError: the disk is full.
    """
    by_module = []
    for comparison in comparisons:
        summary = summarise(comparison)
        by_module.append(
            {
                "title": f"{comparison.problem} against default ({comparison.level})",
                "modules": list(map(cells, summary.modules)),
                "programs": list(map(cells, summary.programs)),
                "total": cells(summary.total),
                "notes": [
                    compile_time(comparison, summary),
                    weighting(summary),
                    agreement(comparison.modes),
                ],
                "left_out": summary.left_out,
                "bars": _bars(summary.modules),
            }
        )
    values = {"columns": list(COLUMNS), "comparisons": by_module, "sections": sections}
    page.write_page("comparison.html.j2", output, values)
