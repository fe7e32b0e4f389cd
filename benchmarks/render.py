# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fills the tables and pictures of docs/results/ from benchmarks/results/.

A page says where a table of a result goes, by the names of the result and of its table:

    <!-- table: policies/time -->
    <!-- end -->

Rendering replaces what is between the two lines. Where the result has a plot of that table, the
picture NAME.svg is written beside the page. Equal results give equal bytes.
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.results import FOLDER, Cell, Plot, Result, ResultError, Table, read
from compiler_opt_perf.run.files import atomic_write

PAGES = Path(__file__).resolve().parent.parent / "docs" / "results"

_MARKED = re.compile(
    r"^<!-- table: ([\w-]+)/([\w-]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
_COLOURS = ("#4477aa", "#cc8844", "#7a9a5b", "#998ec3")
_UNITS = {"percent": "%", "seconds": "s", "bytes": "bytes", "ratio": "×"}
#: Of pictures. Text stays text, so that files are small and can be searched.
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "grid.color": "#e4e4e4",
    "svg.fonttype": "none",
    "svg.hashsalt": "compiler-opt-perf",
    "ytick.left": False,
}


def rendered(pages: Path = PAGES, results: Path = FOLDER) -> dict[Path, str]:
    """The files of a folder of pages as they must be: pages with tables, and pictures.

    Raises:
      ResultError: a page names a result, or a table of it, that does not exist.
    """
    files: dict[Path, str] = {}
    for page in sorted(pages.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for marked in list(_MARKED.finditer(text)):
            result = read(results / f"{marked[1]}.json")
            try:
                table = result.table(marked[2])
            except KeyError as error:
                raise ResultError(f"{page}: {marked[1]}.json has no table {error}") from error
            picture = ""
            if result.plot and result.plot.table == table.name:
                files[pages / f"{marked[1]}.svg"] = _svg(table, result.plot)
                picture = f"![{result.question}]({marked[1]}.svg)\n\n"
            text = text.replace(marked[0], _block(marked[0], result, table, picture))
        files[page] = text
    return files


def update(pages: Path = PAGES, results: Path = FOLDER, *, check: bool = False) -> list[str]:
    """Writes the pages and pictures that are not as they must be, and deletes pictures of no page.

    Args:
      check: change no file.

    Returns:
      The names of these files.

    Raises:
      ResultError: as `rendered`.
    """
    files = rendered(pages, results)
    unused = [path for path in sorted(pages.glob("*.svg")) if path not in files]
    if not check:
        for path in unused:
            path.unlink()
    return write_changed(files, check=check) + [path.name for path in unused]


def write_changed(files: Mapping[Path, str], *, check: bool) -> list[str]:
    """Writes the files whose text differs, unless `check`; returns their names."""
    changed = [path for path, text in files.items() if _text(path) != text]
    if not check:
        for path in changed:
            with atomic_write(path) as temporary:
                temporary.write_text(files[path], encoding="utf-8")
    return [path.name for path in changed]


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _block(marked: str, result: Result, table: Table, picture: str) -> str:
    first, _, _ = marked.partition("\n")
    # The command is of the commit that measured, so it is no block that the guides' test runs.
    return (
        f"{first}\n{table.caption}\n\n{table.markdown()}\n{picture}"
        f"Measured {result.date} on {result.machine}; commit {result.commit}:\n\n"
        f"```text\n{result.command}\n```\n<!-- end -->"
    )


def _svg(table: Table, plot: Plot) -> str:
    names = [column.name for column in table.columns]
    for name in plot.columns:
        if name not in names:
            raise ResultError(f"plot of table {table.name}: no column {name}")
    places = [names.index(name) for name in plot.columns]
    rows = [row for row in table.rows if any(_bounds(row[place]) for place in places)]
    # A matplotlibrc of the user must change nothing.
    with matplotlib.style.context(["default", STYLE]):
        height = 0.8 + 0.16 * len(rows) * len(places) if plot.kind == "bars" else 3
        figure = Figure(figsize=(7, max(height, 1.6)), layout="constrained")
        axes = figure.subplots()
        draw = draw_bars if plot.kind == "bars" else _lines
        draw(axes, rows, {names[place]: [row[place] for row in rows] for place in places})
        unit = _UNITS.get(table.columns[places[0]].format.partition(":")[0])
        label = names[places[0]] if len(places) == 1 else ""
        label = f"{label} ({unit})" if label and unit else label or unit or ""
        (axes.set_xlabel if plot.kind == "bars" else axes.set_ylabel)(label)
        if len(places) > 1:
            figure.legend(loc="outside upper right", ncols=4, frameon=False, fontsize=7)
        return svg_text(figure)


def svg_text(figure: Figure) -> str:
    """A figure as SVG: the same data give the same bytes."""
    buffer = io.StringIO()
    # No date and no version of matplotlib.
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _bounds(cell: Cell) -> tuple[float, float, float] | None:
    """Value and ends of the interval of a cell; None of one that is no number."""
    if isinstance(cell, tuple):
        return cell
    return (cell, cell, cell) if isinstance(cell, int | float) else None


def draw_bars(axes: Axes, rows: list[list[Cell]], series: Mapping[str, list[Cell]]) -> None:
    """Draws a group of horizontal bars for each row, a bar for each series, and intervals as lines.

    Args:
      rows: named by their first cells.
      series: by name, a cell for each row.
    """
    width = 0.8 / len(series)
    for number, (name, cells) in enumerate(series.items()):
        first = (number - (len(series) - 1) / 2) * width
        points = [(row + first, *bounds) for row, c in enumerate(cells) if (bounds := _bounds(c))]
        places = [place for place, *_ in points]
        values = [value for _, value, *_ in points]
        axes.barh(places, values, 0.9 * width, color=_COLOURS[number % len(_COLOURS)], label=name)
        lows, highs = [low for *_, low, _ in points], [high for *_, high in points]
        axes.hlines(places, lows, highs, color="#444444", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [str(row[0]) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color="#888888", linewidth=0.8)


def _lines(axes: Axes, rows: list[list[Cell]], series: Mapping[str, list[Cell]]) -> None:
    """Draws a line for a column, over the rows in their order."""
    for number, (name, cells) in enumerate(series.items()):
        points = [(row, bounds[0]) for row, c in enumerate(cells) if (bounds := _bounds(c))]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3, label=name)
    axes.set_xticks(range(len(rows)), [str(row[0]) for row in rows])
