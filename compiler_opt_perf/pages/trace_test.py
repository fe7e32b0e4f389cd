# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.pages.trace import write_page
from compiler_opt_perf.trace.conftest import build, program, trace
from compiler_opt_perf.trace.statistics import Statistics
from compiler_opt_perf.trace.trace_file import Trace

pytestmark = pytest.mark.compiler

# Fixtures.
__all__ = ("build", "program", "trace")


def test_page(trace: Trace, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(Statistics.read(trace), page, 5)
    text = page.read_text()
    assert text.count("<svg") == 2
    assert "turn" in text
    assert "<td>1 of" not in text.split("turn</td>")[1].split("</tr>")[0]
    write_page(Statistics.read(trace), tmp_path / "again.html", 5)
    assert (tmp_path / "again.html").read_text() == text
