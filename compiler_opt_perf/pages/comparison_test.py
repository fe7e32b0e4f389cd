# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from compiler_opt_perf.compare.testing import ALL_MODES, EVICT, INLINE, LINKED, ODD_NAMES
from compiler_opt_perf.compare.training_run import read_curve
from compiler_opt_perf.pages.comparison import write_page


def test_page_holds_tables_and_plots_and_is_reproducible(tmp_path: Path) -> None:
    curve: list[dict[str, float]] = [{"generation": 0, "validation_of_mean": 0.01}]
    curve += [
        {"generation": g, "candidates_mean": -0.01 * g, "validation_of_mean": -0.02} for g in (1, 2)
    ]
    (tmp_path / "curve.jsonl").write_text("".join(json.dumps(row) + "\n" for row in curve))
    curves = {"inline-size": read_curve(tmp_path / "curve.jsonl")}
    for name in ("one.html", "two.html"):
        write_page([INLINE, EVICT], curves, tmp_path / name)
    page = (tmp_path / "one.html").read_text()
    assert page == (tmp_path / "two.html").read_text()

    counts: dict[str, int] = {}

    class Counter(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            counts[tag] = counts.get(tag, 0) + 1

    Counter().feed(page)
    assert (counts["table"], counts["h2"], counts["svg"], counts["details"]) == (4, 2, 3, 2)
    assert "zstd/a&lt;b&gt;" in page
    assert "-10.00%" in page and "-25.00%" in page


def test_linked_programs_come_first(tmp_path: Path) -> None:
    write_page([INLINE], {}, tmp_path / "page.html", [LINKED])
    page = (tmp_path / "page.html").read_text()
    first = page.index("<table>")
    assert page.index("<h2>shipped, inline-size against default (-Oz)") < first
    assert first < page.index("<td>-5.13%</td>") < page.index("<h2>inline-size against default")
    assert "The compiler fails on tcc with the policy." in page
    write_page([], {}, tmp_path / "page.html", [LINKED])
    assert "Modules compiled in release mode" not in (tmp_path / "page.html").read_text()


def test_page_says_of_modes_what_the_comparison_says(tmp_path: Path) -> None:
    same = "took the same decisions and gave the same object files"
    for modes in (ALL_MODES, ("release", "development"), ("release",), ()):
        write_page([replace(INLINE, modes=modes)], {}, tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert (same in page) == (len(modes) > 1)
        assert ("modes were not compared" in page) == (len(modes) < 2)
        assert ("interactive" in page) == ("interactive" in modes)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_not_formulas(name: str, tmp_path: Path) -> None:
    comparison = replace(INLINE, modules=(replace(INLINE.modules[0], name=name),))
    write_page([comparison], {}, tmp_path / "page.html")
    assert name in (tmp_path / "page.html").read_text()
