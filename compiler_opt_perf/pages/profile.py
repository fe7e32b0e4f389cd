# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A PMU profile as one self-contained HTML page."""

from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.pages import page
from compiler_opt_perf.profile.hotspots import (
    Hotspot,
    SourceText,
    shown_rates,
    top_functions,
    top_lines,
)
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.report import PLOT_WIDTH, interval, penalties, place, summarize
from compiler_opt_perf.run.symbol_names import demangled


def write_page(profile: Profile, output: Path, number: int) -> None:
    """Writes the summary, the `number` most costly functions and lines, and plots of both.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    texts = SourceText()
    sections = []
    for title, spots in (
        ("Functions", top_functions(profile, number)),
        ("Lines", top_lines(profile, number)),
    ):
        names = places(spots)
        rows = [
            {
                "place": where,
                "share": cost_share(profile, spot),
                "rates": [interval(estimate) for estimate in spot.estimates],
                "text": texts.line(spot.source) if spot.line is not None else "",
            }
            for spot, where in zip(spots, names, strict=True)
        ]
        plot = bars(profile, spots, names) if spots else ""
        sections.append({"title": title, "rows": rows, "plot": plot})
    values = {
        "title": profile.manifest.path.name,
        "summary": summarize(profile.manifest, profile.executed),
        "penalties": penalties(profile),
        "rates": [rate.name for rate in shown_rates(profile)],
        "sections": sections,
    }
    page.write_page("profile.html.j2", output, values)


def places(spots: Sequence[Hotspot]) -> list[str]:
    """The name of each function or line, short enough for a plot."""
    names = demangled(sorted({spot.function for spot in spots}))
    return [place(spot, names[spot.function], PLOT_WIDTH) for spot in spots]


def cost_share(profile: Profile, spot: Hotspot) -> str:
    """The share of the program's nominal cycles lost that a function or line has."""
    everything = sum(_penalty_parts(profile, profile.samples.located).values())
    return f"{100 * spot.cost / max(1, everything):.2f}%"


def _penalty_parts(profile: Profile, counts: Sequence[int]) -> dict[str, int]:
    """Nominal cycles lost, by event."""
    return {
        event.name: event.penalty_cycles * count
        for event, count in zip(profile.samples.events, counts, strict=True)
        if event.penalty_cycles
    }


def bars(profile: Profile, spots: Sequence[Hotspot], names: Sequence[str]) -> str:
    """Cost of each place as a bar, divided by the event that causes it; SVG."""
    figure, axes = page.bar_plot(names, "nominal cycles lost, millions")
    rows = range(len(spots))
    left = [0.0] * len(spots)
    parts = [_penalty_parts(profile, spot.counts) for spot in spots]
    for event in parts[0]:
        widths = [part[event] / 1e6 for part in parts]
        axes.barh(rows, widths, left=left, label=event)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.legend(fontsize=7)
    return page.svg(figure)
