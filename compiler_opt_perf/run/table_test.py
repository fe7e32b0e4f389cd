# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from compiler_opt_perf.run.table import literal, markdown, percent, share, terminal

HEAD = ("name", "bytes")


def test_markdown_keeps_each_cell_in_its_column() -> None:
    rows = [("a|b", "1"), ("*c*", "2")]
    assert markdown(HEAD, rows, numbers=(1,)) == (
        "| name | bytes |\n| --- | ---: |\n| a\\|b | 1 |\n| *c* | 2 |\n"
    )
    assert "| \\*c\\* | 2 |\n" in markdown(HEAD, rows, escaped=True)
    assert literal("<b>|") == "\\<b\\>\\|"


@pytest.mark.parametrize("name", ["[red]a[/b]", r"a\[b]", ":smile:", "x" * 500])
def test_lines_show_names_as_they_are(name: str) -> None:
    shown = terminal(HEAD, [(name, "1,234")], numbers=(1,), title="sizes", total=("total", "9"))
    lines = shown.splitlines()
    assert lines[0].strip() == "sizes"
    assert any(line.split() == [name, "1,234"] for line in lines)
    assert lines[-1].endswith("    9") and lines[-1].split() == ["total", "9"]


def test_numbers_are_rounded_and_what_is_missing_is_a_dash() -> None:
    assert percent(-0.012345) == "-1.23%"
    assert percent(0.01, (0.005, 0.015)) == "+1.00% [+0.50, +1.50]"
    assert share(1, 8) == "12.5%"
    assert percent(None) == share(1, 0) == "–"
