# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.pages.page import bar_plot, svg

TEMPLATES = Path(__file__).parent / "templates"


def test_pages_have_one_base() -> None:
    for path in TEMPLATES.iterdir():
        extends = path.read_text().startswith('{% extends "base.html.j2" %}\n')
        assert extends == (path.name not in ("base.html.j2", "macros.html.j2")), path


@pytest.mark.parametrize("name", ["_Z1fv", r"a$\frac{1$", "$a$"])
def test_names_are_text_in_plots(name: str) -> None:
    figure, axes = bar_plot([name, "other"], "cycles")
    axes.barh(range(2), [1, 2])
    plot = svg(figure)
    # Each text is a comment beside its outlines.
    assert f"<!-- {name} -->" in plot
    assert plot.startswith("<svg")
