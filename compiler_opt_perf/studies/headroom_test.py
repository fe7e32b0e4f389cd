# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The study of what inlining decisions could save, on one small program."""

import json
from pathlib import Path

import pytest

from compiler_opt_perf.studies import headroom
from compiler_opt_perf.toolchain.installation import Toolchain


def test_a_program_is_searched(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = headroom.study(["bzip2"], tmp_path, toolchain, modules=1, rounds=1)
    path = tmp_path / "bzip2.json"
    result = json.loads(path.read_text())
    (row,) = result["searched"]
    assert result["modules_in_all"] == 8
    assert row["best"] < row["default"]
    assert row["given"] > 0
    assert len(row["by_threshold"]) == len(headroom.THRESHOLDS)
    # Copies count as parts, in all columns.
    assert min(row["by_threshold"]) < 1.5 * row["default"]
    assert f"| bzip2 | 1 | {row['taken']} | {row['default']:,.0f} |" in printed
    linked = result["linked"]
    # No function of a program of C is in two objects: what one module saves is saved in all, but
    # for what aligns the objects.
    saved = row["default"] - row["best"]
    assert abs(linked["before"] - linked["found"] - saved) < 16 < saved
    assert linked["225"] > linked["plain"]
    assert f"| bzip2 | {linked['plain']:,} |" in printed

    # What was searched is not searched again.
    before = path.stat().st_mtime_ns
    assert headroom.study(["bzip2"], tmp_path, toolchain, modules=1, rounds=1) == printed
    assert path.stat().st_mtime_ns == before

    # Of other settings it is another search.
    empty = {"searched": [], "linked": linked}
    monkeypatch.setattr(headroom, "_study", lambda *_: empty)
    headroom.study(["bzip2"], tmp_path, toolchain, modules=1, rounds=2)
    found = {"modules": 1, "rounds": 2, "seed": 1, **empty}
    assert json.loads(path.read_text()) == found


def test_changes_are_of_sums() -> None:
    def result(default: list[float], best: list[float], thresholds: list[list[float]]) -> object:
        fill = len(headroom.THRESHOLDS) - 2
        rows = [
            {"taken": 10, "default": d, "best": b, "given": 1, "compilations": 5}
            | {"by_threshold": [*t, *[1e6] * fill]}
            for d, b, t in zip(default, best, thresholds, strict=True)
        ]
        return {"searched": rows}

    printed = headroom.table(
        {
            "a": result([100, 100], [90, 80], [[95, 120], [105, 90]]),
            "b": result([200], [200], [[190, 300]]),
            "none": {"searched": []},
        }
    )
    a, b, total = printed.splitlines()[2:5]
    assert a == "| a | 2 | 20 | 200 | +0.00% | +0.00% | -7.50% | -15.00% | 2 | 10 |"
    assert b == "| b | 1 | 10 | 200 | -5.00% | -5.00% | -5.00% | +0.00% | 1 | 5 |"
    assert total == "| all | 3 | 30 | 400 | -2.50% |  | -6.25% | -7.50% | 3 | 15 |"
    assert printed.endswith(
        f"The best constant of all is -inline-threshold={headroom.THRESHOLDS[0]}."
    )


def test_linked_programs_have_one_best_constant() -> None:
    def result(default: int, first: int, second: int, found: int) -> object:
        linked = dict.fromkeys(map(str, headroom.THRESHOLDS), 10**6)
        linked |= dict(zip(map(str, headroom.THRESHOLDS), (first, second), strict=False))
        rows = [{"default": 50.0, "best": 40.0}]
        return {
            "searched": rows,
            "linked": {**linked, "plain": default, "before": default + 1, "found": found},
        }

    printed = headroom.linked_table(
        {"a": result(1000, 990, 1030, 995), "b": result(1000, 1020, 950, 999)}
    )
    first, second = headroom.THRESHOLDS[:2]
    a, b, mean, _, best = printed.splitlines()[2:]
    assert a == f"| a | 1,000 | +3.00% | -1.00% ({first}) | 10 | 6 |"
    assert b == f"| b | 1,000 | -5.00% | -5.00% ({second}) | 10 | 2 |"
    assert mean == "| geometric mean | | -1.08% | -3.02% | | |"
    assert best == f"The best constant of all linked programs is -inline-threshold={second}."
