# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path
from typing import Literal

import msgspec

from compiler_opt_perf.compare.check import check
from compiler_opt_perf.compare.history import event_of
from compiler_opt_perf.compare.limits import DEFAULT, read_limits
from compiler_opt_perf.compare.testing import ODD_NAMES, sample
from compiler_opt_perf.pages.gate import write_page


def test_the_page_has_a_plot_for_each_metric_and_a_row_for_each_event(tmp_path: Path) -> None:
    limits = read_limits(DEFAULT)
    events = []
    for number, text in enumerate((1000, 1500, 1001), 1):
        measured = sample(text=text)
        kind: Literal["check", "accept"] = "accept" if number == 3 else "check"
        judged_by = {} if kind == "accept" else limits
        event = event_of(kind, check(sample(), measured, judged_by), measured)
        events.append(msgspec.structs.replace(event, number=number))
    reasons = " ".join(("<b>bold</b>", *ODD_NAMES))
    events[-1] = msgspec.structs.replace(events[-1], reason=reasons)
    write_page(events, tmp_path / "page.html")
    shown = (tmp_path / "page.html").read_text()
    assert shown.count("<svg") == 8
    assert "<h2>regalloc-evict: text</h2>" in shown
    # Each plot shows what the measured values are judged by; an accepted one was not judged.
    assert shown.count("<!-- baseline -->") == shown.count("<!-- limit -->") == 8
    write_page(events[-1:], tmp_path / "accepted.html")
    assert "<!-- limit -->" not in (tmp_path / "accepted.html").read_text()
    assert "<td>text 2,000 to 2,500</td>" in shown
    assert "&lt;b&gt;bold" in shown and "<b>bold" not in shown
    assert shown.index("<td>3</td>") < shown.index("<td>1</td>")
    write_page(events, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == shown
    write_page([], tmp_path / "empty.html")
    assert "<svg" not in (tmp_path / "empty.html").read_text()
