# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.report.comparison import Comparison, ModuleComparison
from compiler_opt_perf.report.page import (
    ReportError,
    print_comparison,
    read_comparison,
    read_curve,
    write_page,
)

INLINE = Comparison(
    "inline-size",
    "-Oz",
    (
        ModuleComparison("zstd/a<b>", 1000, 900, None, None, 50, 40, 20, 5, 1.0, 1.1),
        ModuleComparison("zstd/empty", 0, 0, None, None, 0, 0, 0, 0, 0.5, 0.4),
    ),
)
EVICT = Comparison(
    "regalloc-evict", "-O2", (ModuleComparison("z", 10, 10, 80.0, 60.0, 4, 2, 1, 3, 1.0, 1.0),)
)


def test_total_is_the_sum_of_the_modules() -> None:
    total = INLINE.total()
    assert (total.text_default, total.text_policy, total.decisions) == (1000, 900, 50)
    assert total.score_default is None
    assert total.seconds_policy == pytest.approx(1.5)


def test_comparison_survives_its_file(tmp_path: Path) -> None:
    write_json(tmp_path / "c.json", INLINE.to_json())
    assert read_comparison(tmp_path / "c.json") == INLINE


def test_table_shows_changes_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(INLINE)
    print_comparison(EVICT)
    shown = capsys.readouterr().out
    for cell in ("-10.00%", "80.0%", "10.0%", "×1.10", "-25.00%", "75.0%"):
        assert cell in shown


def test_page_holds_tables_and_plots_and_is_reproducible(tmp_path: Path) -> None:
    curve: list[dict[str, float]] = [{"generation": 0, "validation": -0.01}]
    curve += [{"generation": g, "fitness_mean": 0.01 * g, "validation": 0.02} for g in (1, 2)]
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
    assert (counts["table"], counts["h2"], counts["svg"]) == (2, 2, 3)
    assert "zstd/a&lt;b&gt;" in page
    assert "-10.00%" in page and "-25.00%" in page


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps(INLINE.to_json() | {"version": 2}),
        json.dumps(INLINE.to_json() | {"modules": []}),
        json.dumps(INLINE.to_json() | {"modules": [{"name": "a"}]}),
        json.dumps(INLINE.to_json())[:-20],
        "[" * 200_000,
        json.dumps(INLINE.to_json() | {"level": 2}),
        json.dumps(INLINE.to_json()).replace('"text_default": 1000', '"text_default": "1000"'),
        json.dumps(INLINE.to_json()).replace('"text_default": 1000', '"text_default": 1.5'),
        json.dumps(INLINE.to_json()).replace(
            '"text_default": 1000', f'"text_default": 1{400 * "0"}'
        ),
        json.dumps(INLINE.to_json()).replace('"seconds_default": 1.0', '"seconds_default": NaN'),
        json.dumps(INLINE.to_json()).replace('"seconds_default": 1.0', '"seconds_default": null'),
        json.dumps(INLINE.to_json()).replace("zstd/empty", "\\ud800"),
    ],
)
def test_damaged_comparison_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(damage)
    with pytest.raises(ReportError, match=r"c\.json: not a comparison .*cop compare"):
        read_comparison(path)


def test_damaged_curve_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    path.write_text('{"generation": 0, "validation": 0}\n{"generation"\n')
    with pytest.raises(ReportError, match=r"curve\.jsonl:2: not a row"):
        read_curve(path)
    for row in (
        b"\xff",
        b"[1]",
        b'{"generation": "1"}',
        b'{"generation": 1, "validation": "good"}',
        b'{"generation": 1, "validation": 1' + b"0" * 400 + b"}",
        b"[" * 200_000,
    ):
        path.write_bytes(b'{"generation": 0}\n' + row + b"\n")
        with pytest.raises(ReportError, match=r"curve\.jsonl:2: not a row of a training curve"):
            read_curve(path)


def test_names_are_no_formulas(tmp_path: Path) -> None:
    rows = [ModuleComparison(r"a$\frac{1$", 100, 90, None, None, 5, 4, 2, 5, 1.0, 1.1)]
    write_page([Comparison("inline-size", "-Oz", tuple(rows))], {}, tmp_path / "page.html")
    assert r"a$\frac{1$" in (tmp_path / "page.html").read_text()
