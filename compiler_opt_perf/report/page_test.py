# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.report.comparison import Comparison, FunctionScores, ModuleComparison
from compiler_opt_perf.report.page import (
    ReportError,
    describe,
    read_comparison,
    read_curve,
    write_page,
)
from compiler_opt_perf.report.summary import to_json

ALL_MODES = ("release", "development", "interactive")
INLINE = Comparison(
    "inline-size",
    "-Oz",
    ALL_MODES,
    1,
    "processor time, 3 pairs a module",
    (
        ModuleComparison("zstd/a<b>", 1000, 900, (), 50, 40, 20, 5, (1.0, 2, 3), (1.1, 2.2, 3.3)),
        ModuleComparison("zstd/empty", 0, 0, (), 0, 0, 0, 0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ),
)
EVICT = Comparison(
    "regalloc-evict",
    "-O2",
    ("release",),
    1,
    "instructions, counted by QEMU's user mode, 1 pair a module",
    (
        ModuleComparison(
            "z",
            10,
            10,
            (FunctionScores("f", None, 80.0, 60.0), FunctionScores("[g]", None, None, 1.0)),
            4,
            2,
            1,
            3,
            (100.0,),
            (101.0,),
        ),
    ),
)


def test_comparison_survives_its_file(tmp_path: Path) -> None:
    for comparison in (INLINE, EVICT):
        write_json(tmp_path / "c.json", to_json(comparison))
        assert read_comparison(tmp_path / "c.json") == comparison


def test_tables_show_costs_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    print(describe(INLINE))
    shown = capsys.readouterr().out
    for text in ("-10.00%", "80.0%", "10.0%", "+4.88% [+4.88, +4.88]", "negative is better"):
        assert text in shown
    assert "Compile time: processor time, 3 pairs a module, in random order (seed 1); " in shown
    assert "Left out: 1 modules without code, of the size (zstd/empty)" in shown
    assert "Release, development and interactive mode took the same decisions" in shown
    print(describe(EVICT))
    shown = capsys.readouterr().out
    for text in ("-25.00%", "75.0%", "+1.00%", "(z: [g])", "each function counts once"):
        assert text in shown
    assert "pairs are too few for an interval" in shown
    assert "modes were not compared" in shown and "same decisions" not in shown


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


def test_page_says_of_modes_what_the_comparison_says(tmp_path: Path) -> None:
    same = "took the same decisions and gave the same object files"
    for modes in (ALL_MODES, ("release", "development"), ("release",), ()):
        write_page([replace(INLINE, modes=modes)], {}, tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert (same in page) == (len(modes) > 1)
        assert ("modes were not compared" in page) == (len(modes) < 2)
        assert ("interactive" in page) == ("interactive" in modes)


def _damaged(change: Callable[[dict[str, Any]], None]) -> str:
    value = copy.deepcopy(json.loads(json.dumps(to_json(EVICT))))
    change(value)
    return json.dumps(value)


def _module(name: str, content: Any) -> str:
    return _damaged(lambda value: value["modules"][0].update({name: content}))


def _function(name: str, content: Any) -> str:
    return _damaged(lambda value: value["modules"][0]["functions"][0].update({name: content}))


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("", ""),
        ("{", ""),
        ("[]", r": \$: expected `object`, found \[\]"),
        ("{}", r": \$\.format: is missing"),
        ("[" * 200_000, "nested too deep"),
        (_damaged(lambda value: None)[:-20], ""),
        (
            _damaged(lambda value: value.update(version=1)),
            r"\$\.version: expected 2, found 1: another version",
        ),
        (
            _damaged(lambda value: value.update(modules=[])),
            "modules: expected `array` of length >= 1",
        ),
        (_damaged(lambda value: value.update(modules={})), "modules: expected `array`, found {}"),
        (_damaged(lambda value: value.update(modules=[1])), r"modules\[0\]: expected `object`"),
        (_damaged(lambda value: value.update(level=2)), "level: expected `str`, found 2"),
        (_damaged(lambda value: value.update(seed=True)), "seed: expected `int`, found true"),
        (_damaged(lambda value: value.update(modes="release")), "modes: expected `array`"),
        (_damaged(lambda value: value.pop("modes")), r"\$\.modes: is missing"),
        (
            _module("text_default", "1000"),
            r'modules\[0\].text_default: expected `int`, found "1000"',
        ),
        (_module("text_default", 1.5), r"modules\[0\].text_default: expected `int`, found 1.5"),
        (_module("text_default", -1), "expected `int` >= 0, found -1"),
        (
            _module("text_default", 10**400),
            r"modules\[0\].text_default: expected `int` <= \d+, found 1000",
        ),
        (
            _module("compile_default", [10**400]),
            r"compile_default\[0\]: number out of range, found 1000",
        ),
        (_module("compile_default", [-(10**400)]), "number out of range, found -1000"),
        (
            _module("compile_default", [float("nan")]),
            r"default\[0\]: expected `float` >= 0.0, found NaN",
        ),
        (_module("compile_default", [0.0]), "expected pairs above 0"),
        (_module("compile_default", []), "expected pairs above 0"),
        (_module("compile_default", None), "expected `array`, found null"),
        (_module("functions", 3), r"modules\[0\].functions: expected `array`"),
        (
            _function("default", "80"),
            r'functions\[0\].default: expected `float \| null`, found "80"',
        ),
        (_function("calls", 1.5), r"functions\[0\].calls: expected `int \| null`, found 1.5"),
        (_function("policy", float("inf")), "expected `float` < 1.8"),
        (_module("name", "\ud800"), "lone surrogate"),
    ],
)
def test_damaged_comparison_is_named(tmp_path: Path, damage: str, what: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(damage)
    with pytest.raises(ReportError, match=rf"c\.json.*{what}.*; write it with `cop compare`"):
        read_comparison(path)


def test_damaged_curve_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    path.write_text('{"generation": 0, "validation_of_mean": 0}\n{"generation"\n')
    with pytest.raises(ReportError, match=r"curve\.jsonl:2:1:14: not JSON: .*cop train"):
        read_curve(path)
    huge = "1" + 400 * "0"
    for row, message in (
        (b"\xff", "not JSON: byte 0 is not UTF-8"),
        (b"[1]", "$: expected `object`, found [1]"),
        (
            b'{"generation": "1", "validation_of_mean": 0}',
            '$.generation: expected `int`, found "1"',
        ),
        (b'{"generation": 1, "validation_of_mean": "good"}', "$.validation_of_mean: expected `fl"),
        (
            f'{{"generation": 1, "validation_of_mean": {huge}}}'.encode(),
            "$.validation_of_mean: number out of range, found 1000",
        ),
        (b'{"generation": 1, "validation_of_mean": NaN}', "$.validation_of_mean: expected"),
        # Of an older version, whose signs were the other way round.
        (b'{"generation": 1, "validation": 0.1}', "$.validation_of_mean: is missing"),
        (b"[" * 200_000, "not JSON: nested too deep"),
    ):
        path.write_bytes(b'{"generation": 0, "validation_of_mean": 0}\n' + row + b"\n")
        with pytest.raises(
            ReportError, match=re.escape(f"curve.jsonl:2: {message}") + ".*cop train"
        ):
            read_curve(path)


@pytest.mark.parametrize("name", [r"a$\frac{1$", r"$\frac{1$", r"a\$\frac{1$", "[red]a[/b]"])
def test_names_are_neither_formulas_nor_markup(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = replace(INLINE, modules=(replace(INLINE.modules[0], name=name),))
    write_page([comparison], {}, tmp_path / "page.html")
    assert name in (tmp_path / "page.html").read_text()
    print(describe(comparison))
    assert name in capsys.readouterr().out
