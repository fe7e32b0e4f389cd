# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all pages share: plots as SVG, and templates that are filled in."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import matplotlib.axes
import matplotlib.figure

from compiler_opt_perf.run.files import write_text

matplotlib.use("Agg")
# Fixed ids and no date make the same figures the same bytes.
matplotlib.rcParams["svg.hashsalt"] = "compiler-opt-perf"


def literal(text: str) -> str:
    """A text for a plot; matplotlib takes what is between two dollar signs for a formula."""
    return text.replace("$", r"\$")


def bar_plot(
    places: Sequence[str], label: str
) -> tuple[matplotlib.figure.Figure, matplotlib.axes.Axes]:
    """An empty plot for a horizontal bar a place, the first at the top, at 0, 1, 2, ...

    Args:
      label: of the bars' length.
    """
    figure = matplotlib.figure.Figure(figsize=(9, 0.25 * len(places) + 1), layout="constrained")
    axes = figure.subplots()
    # Ticks with these names: a name that begins with an underscore is one, too.
    axes.set_yticks(range(len(places)), list(map(literal, places)), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    return figure, axes


def svg(figure: matplotlib.figure.Figure) -> str:
    """A plot as an element of HTML; the figure is empty afterwards."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    figure.clear()
    # The XML prolog has no place inside HTML.
    _, start, rest = buffer.getvalue().partition("<svg")
    return start + rest


def write_svg(figure: matplotlib.figure.Figure, output: Path) -> None:
    """Writes a plot as a file of its own; the figure is empty afterwards.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    write_text(output, '<?xml version="1.0" encoding="utf-8"?>\n' + svg(figure))


def write_page(template: str, output: Path, values: dict[str, Any]) -> None:
    """Fills in `template` of the folder `templates`.

    Args:
      values: by the names that the template uses; text is escaped.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__), autoescape=True, undefined=jinja2.StrictUndefined
    )
    write_text(output, environment.get_template(template).render(**values))
