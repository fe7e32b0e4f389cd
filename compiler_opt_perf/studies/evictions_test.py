# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The studies of evictions on one small program."""

import json
import os
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.cost.cpu_files import cpu_file
from compiler_opt_perf.studies import eviction_builds, eviction_headroom, evictions
from compiler_opt_perf.studies.common import Timing
from compiler_opt_perf.studies.workloads import COUNTED, HELD_OUT, Workload
from compiler_opt_perf.toolchain.installation import Toolchain

TREE = Path(__file__).parents[1] / "cost/testdata"


def test_a_program_is_studied_and_searched(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(name="pressure", source_package="none", sources=("pressure.c",))
    monkeypatch.setitem(COUNTED, "pressure", lambda _: Workload(program, TREE, ("40",)))
    monkeypatch.setitem(HELD_OUT, "pressure", lambda _: Workload(program, TREE, ("50",)))
    constants = tuple(one for one in eviction_builds.CONSTANTS if one.name == "csr 65536")
    chosen = (eviction_builds.DEFAULT, *constants)
    few = tuple(one for one in eviction_builds.variants(1) if one.name == "8 registers")
    for module in (evictions, eviction_headroom):
        monkeypatch.setattr(module, "CONSTANTS", constants)
        monkeypatch.setattr(module, "PROGRAMS", ("pressure",))
    monkeypatch.setattr(evictions, "variants", lambda _: (*chosen, *few))
    found = evictions.study(["pressure"], tmp_path, toolchain, levels=["O2-PGO"])

    rows = found["pressure O2-PGO"]["variants"]
    assert list(rows) == ["default", "csr 65536", "8 registers", "measured frequencies"]
    counted, predicted = (
        [rows[name][kind] - rows["default"][kind] for name in list(rows)[:3]]
        for kind in ("counted", "count")
    )
    assert predicted == pytest.approx(counted, abs=0.005 * rows["default"]["counted"])
    assert abs(counted[2]) > 0.02 * rows["default"]["counted"]
    text = evictions.tables(found)
    assert "| pressure O2-PGO | 3 |" in text and text.count("%") > 4

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("executed.json")}
    assert evictions.study(["pressure"], tmp_path, toolchain, levels=["O2-PGO"]) == found
    assert {path: path.stat().st_mtime_ns for path in before} == before

    timing = Timing(rounds=4, layouts=4, processor=min(os.sched_getaffinity(0)))
    judged = evictions.study(
        ["pressure"],
        tmp_path,
        toolchain,
        levels=["O2-PGO"],
        cpu=cpu_file("znver3"),
        timing=timing,
    )["pressure O2-PGO"]
    assert {key: judged[key] for key in found["pressure O2-PGO"]} == found["pressure O2-PGO"]
    # Code of other blocks than the recorded run's has no cycles, but a time.
    assert list(judged["cycles"]) == ["default", "csr 65536", "8 registers"]
    assert judged["cycles"]["8 registers"] > 1.02 * judged["cycles"]["default"]
    assert judged["timed"]["rounds"] == 4 and list(judged["timed"]["changes"]) == list(rows)[1:]
    text = evictions.tables({"pressure O2-PGO": judged})
    assert text.count("| pressure O2-PGO |") == 4
    assert "cycles (mca-pmu)" in text and "| resolves |" in text

    limits = eviction_headroom.Limits(rounds=1, most=3, seed=1)
    searched = eviction_headroom.study(["pressure"], tmp_path, toolchain, limits, level="O2-PGO")
    result = searched["pressure O2-PGO"]
    assert result == json.loads((tmp_path / "pressure O2-PGO search.json").read_text())
    for one in result["searches"]:
        # What is gained in functions that were compiled alone is gained in the linked program.
        gained = sum(each["best"] - each["default"] for each in one["functions"])
        assert one["after"]["predicted"] - one["before"]["predicted"] == gained < 0
    starts = len(result["searches"])
    assert eviction_headroom.tables(searched).count("pressure O2-PGO") == starts

    # What was searched is kept; it is another program, by other decisions alone.
    again = eviction_headroom.study(
        ["pressure"],
        tmp_path,
        toolchain,
        limits,
        level="O2-PGO",
        cpu=cpu_file("znver3"),
        timing=timing,
    )
    more = again["pressure O2-PGO"]
    assert {key: more[key] for key in result} == result
    starts_at = [one["start"] for one in result["searches"]]
    names = [name for start in starts_at for name in (start, f"{start}, searched")]
    assert list(more["cycles"]) == names and len({*more["cycles"].values()}) == len(names)
    assert more["timed"]["rounds"] == 4 and list(more["timed"]["changes"]) == names[1:]
    text = eviction_headroom.tables(again)
    assert text.count("pressure O2-PGO") == starts + 2
    assert "cycles (mca-pmu)" in text and "| resolves |" in text
