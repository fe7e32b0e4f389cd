# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The study of instruction counts on one small program."""

import json
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.studies import cost as bench
from compiler_opt_perf.studies.workloads import COUNTED, Workload
from compiler_opt_perf.toolchain.installation import Toolchain

TREE = Path(__file__).parents[1] / "cost/testdata"


def test_a_program_is_studied(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"default", "8 registers", "-fno-inline", "branch folding, tail duplication"}
    monkeypatch.setattr(bench, "VARIANTS", tuple(v for v in bench.VARIANTS if v.name in names))
    program = Program(name="requests", source_package="none", sources=("requests.c",))
    monkeypatch.setitem(COUNTED, "requests", lambda _: Workload(program, TREE, ("3000",)))
    monkeypatch.setitem(bench.ENTRIES, "requests", ("scan",))
    printed = bench.study(["requests"], tmp_path, toolchain)

    result = json.loads((tmp_path / "requests.json").read_text())
    rows = {row["name"]: row for row in result["variants"]}
    base = rows["default"]
    for name, bound in (("8 registers", 0.005), ("-fno-inline", 0.03)):
        row = rows[name]
        true = row["counted"] - base["counted"]
        assert row["profile-count"] == pytest.approx(true, abs=bound * base["counted"])
        scan = row["entries"]["scan"]
        assert scan["within"]["calls"] == scan["counted"]["calls"] > 0
        true = scan["counted"]["instructions"]
        assert scan["within"]["instructions"] == pytest.approx(true, rel=bound)
        assert scan["whole"]["instructions"] == pytest.approx(true, rel=0.03)
    # Where inlining changed, it has no use for block ids.
    # With 8 registers, scan has a block on an edge that the trace knows without one.
    true = rows["8 registers"]["counted"] - base["counted"]
    within = 0.005 * base["counted"]
    assert rows["8 registers"]["count"] - base["count"] == pytest.approx(true, abs=within)
    assert rows["-fno-inline"]["count"] is None
    assert rows["branch folding, tail duplication"]["count"] is None
    assert printed.count("| 8 registers |") == 2

    # What was counted is not counted again: all runs, and in three the calls of a function.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "requests/counts").iterdir()}
    assert len(before) == 4 + 3
    assert bench.study(["requests"], tmp_path, toolchain) == printed
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert json.loads((tmp_path / "requests.json").read_text()) == result
