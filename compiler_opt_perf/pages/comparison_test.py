# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec import to_builtins

from compiler_opt_perf.compare.testing import (
    ALL_MODES,
    EVICT,
    INLINE,
    LINKED,
    ODD_NAMES,
    write_search,
)
from compiler_opt_perf.compare.training_run import read_run
from compiler_opt_perf.pages.comparison import write_page
from compiler_opt_perf.pages.sections import linked_section, training_section, trial_section
from compiler_opt_perf.run.rounds import TimeChange
from compiler_opt_perf.trial.errors import TrialError
from compiler_opt_perf.trial.result import (
    JSON_VERSION,
    KIND,
    Trial,
    TrialRun,
    Verdict,
    WayResult,
    WayRun,
    is_trial,
    read_trial,
)


def _tags(page: str) -> dict[str, int]:
    counts: dict[str, int] = {}

    class Counter(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            counts[tag] = counts.get(tag, 0) + 1

    Counter().feed(page)
    return counts


def test_page_holds_tables_and_plots_and_is_reproducible(tmp_path: Path) -> None:
    for name in ("one.html", "two.html"):
        write_page([INLINE, EVICT], tmp_path / name)
    page = (tmp_path / "one.html").read_text()
    assert page == (tmp_path / "two.html").read_text()
    counts = _tags(page)
    assert (counts["table"], counts["h2"], counts["svg"], counts["details"]) == (4, 2, 2, 2)
    assert "zstd/a&lt;b&gt;" in page
    assert "-10.00%" in page and "-25.00%" in page


def test_sections_come_first_each_with_its_picture(tmp_path: Path) -> None:
    write_search(tmp_path)
    sections = [linked_section(LINKED), training_section(read_run(tmp_path))]
    write_page([INLINE], tmp_path / "page.html", sections)
    page = (tmp_path / "page.html").read_text()
    first = page.index("<table>")
    assert page.index("<h2>shipped, inline-size against default (-Oz)") < first
    assert first < page.index("<td>-5.13%</td>") < page.index("<h2>Training ")
    assert page.index("<h2>Training ") < page.index("<h2>inline-size against default")
    assert "The compiler fails on tcc with the policy." in page
    assert "better than the default" in page
    counts = _tags(page)
    assert (counts["table"], counts["svg"]) == (3, 3)
    write_page([], tmp_path / "page.html", sections)
    assert "Modules compiled in release mode" not in (tmp_path / "page.html").read_text()


def test_a_training_that_linked_programs_shows_them(tmp_path: Path) -> None:
    write_search(tmp_path)
    ended = json.loads((tmp_path / "training.json").read_text())
    ended["results"]["programs"] = {"ninja": {"linked": [1000, 920], "objects": [1100, 990]}}
    (tmp_path / "training.json").write_text(json.dumps(ended))
    section = training_section(read_run(tmp_path))
    assert [row[:4] for row in section.rows] == [["ninja", "1,000", "920", "-8.00%"]]
    assert section.total[3] == "-8.00%"
    assert "ninja" in section.picture
    (tmp_path / "training.json").unlink()
    assert "not ended" in " ".join(training_section(read_run(tmp_path)).text)


def _trial() -> Trial:
    def run(change: float) -> WayRun:
        return WayRun(1000, change, 0.5, TimeChange(change, change - 0.01, change + 0.01), True)

    runs = [
        TrialRun(flag, f"./prog {flag}.txt", 15, TimeChange(0.0, -0.01, 0.01), 0.01)
        for flag in ("run", "run2")
    ]
    ways = [
        WayResult(name, "-O2", "/prog", 900, 0.0, 2000, 0.0, [run(0.0), run(change)])
        for name, change in (("plain", 0.0), ("policies", -0.04))
    ]
    verdict = Verdict("policies", ["Take policies: it is faster."])
    return Trial("/src/json", "/out", "make", "-O2", "/clang", "QEMU", runs, ways, verdict)


def test_sizes_of_builds_are_drawn_by_text_and_by_file() -> None:
    ways = [
        WayResult("plain", "-Oz", "/prog", 1000, 0.0, 2000, 0.0, []),
        WayResult("outliner", "-Oz", "/prog", 900, -0.1, 1960, -0.02, []),
    ]
    verdict = Verdict("outliner", ["Take outliner."])
    trial = Trial("/src/json", "/out", "make", "-Oz", "/clang", None, [], ways, verdict)
    section = trial_section(trial)
    assert section.columns == ["build", "text", "file"]
    assert section.rows == [
        ["plain (-Oz)", "1,000 B", "2,000 B"],
        ["outliner", "-10.00%", "-2.00%"],
    ]
    assert 'id="legend_1"' in section.picture


def test_builds_of_a_program_are_shown_with_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "try.json"
    path.write_text(json.dumps({"kind": KIND, "version": JSON_VERSION, **to_builtins(_trial())}))
    assert is_trial(path)
    section = trial_section(read_trial(path))
    write_page([], tmp_path / "page.html", [section])
    page = (tmp_path / "page.html").read_text()
    assert "<h2>Builds of json against plain -O2</h2>" in page
    assert "<td>-4.00% [-5.00, -3.00]</td>" in page
    assert "Take policies: it is faster." in page
    assert page.count("<svg") == 1 and 'id="legend_1"' in section.picture
    path.write_text(json.dumps({"kind": KIND, "version": 99}))
    with pytest.raises(TrialError, match=r"try\.json.*version 2"):
        read_trial(path)


def test_page_says_of_modes_what_the_comparison_says(tmp_path: Path) -> None:
    same = "took the same decisions and gave the same object files"
    for modes in (ALL_MODES, ("release", "development"), ("release",), ()):
        write_page([replace(INLINE, modes=modes)], tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert (same in page) == (len(modes) > 1)
        assert ("modes were not compared" in page) == (len(modes) < 2)
        assert ("interactive" in page) == ("interactive" in modes)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_not_formulas(name: str, tmp_path: Path) -> None:
    comparison = replace(INLINE, modules=(replace(INLINE.modules[0], name=name),))
    write_page([comparison], tmp_path / "page.html")
    assert name in (tmp_path / "page.html").read_text()
