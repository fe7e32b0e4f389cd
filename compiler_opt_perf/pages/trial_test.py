# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

from compiler_opt_perf.pages.trial import write_page
from compiler_opt_perf.run.rounds import Change
from compiler_opt_perf.trial.result import Trial, TrialRun, Verdict, WayResult, WayRun


def test_the_page_has_the_verdict_and_a_plot_for_each_run(tmp_path: Path) -> None:
    chance = Change(0.0, -0.01, 0.01)
    runs = [TrialRun(flag, "./a < b", 15, chance, 0.01) for flag in ("run", "run2")]
    ways = [
        WayResult(name, "-O2", name, 9, 0.0, [WayRun(None, None, 1.0, change, True)] * 2)
        for name, change in (("plain", chance), ("AutoFDO", Change(-0.2, -0.3, -0.1)))
    ]
    verdict = Verdict("AutoFDO", ["Take AutoFDO & measure."])
    trial = Trial("/src/prog", "/out", "make", "-O2", "/bin/clang", None, runs, ways, verdict)
    write_page(trial, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("<svg") == 2
    assert "<p>Take AutoFDO &amp; measure.</p>" in text and "-20.00% [-30.00, -10.00]" in text
    assert "<title>prog" in text
