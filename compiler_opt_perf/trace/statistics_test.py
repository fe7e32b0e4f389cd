# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.statistics import Statistics, format_blocks, list_blocks
from compiler_opt_perf.trace.trace_file import Trace

pytestmark = pytest.mark.compiler


def test_hot_functions(trace: Trace) -> None:
    statistics = Statistics.read(trace)
    assert statistics.total == trace.total
    hot = statistics.functions[0]
    assert hot.name == "turn"
    assert hot.share > 0.99
    assert hot.blocks <= hot.all_blocks
    assert statistics.hottest(1.0) == int((statistics.counts > 0).sum())
    assert 1 <= statistics.hottest(0.5) <= 4
    text = statistics.text(3)
    assert "cop" not in text
    assert f"executed   {trace.total:,} blocks in 1 streams" in text
    assert "turn" in text
    assert "ended" in text


def test_a_killed_run_says_so(program: Path, tmp_path: Path) -> None:
    trace = record(program, ["abort", "10"], tmp_path / "t.bbtrace")
    assert "killed: its last blocks are missing" in Statistics.read(trace).text(3)


def test_listing(trace: Trace) -> None:
    first, *rest = format_blocks(list_blocks(trace, 0, 65530, 10)).splitlines()[1:]
    assert first.split()[0] == "65,530"
    assert len(rest) == 9
    assert all(" turn." in line for line in (first, *rest))
    with pytest.raises(TraceError, match="has no stream 3; there are 0"):
        list_blocks(trace, 3, 0, 10)
