# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rank study on one small program."""

import json
import os
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.studies import rank as bench
from compiler_opt_perf.studies import variant_builds, variants
from compiler_opt_perf.studies.common import StudyError
from compiler_opt_perf.studies.workloads import TIMED, Workload
from compiler_opt_perf.toolchain.installation import Toolchain

REPO_ROOT = Path(__file__).parents[2]
CPU = REPO_ROOT / "compiler_opt_perf/blocks/cpus/icelake-server.json"
MODELS = [REPO_ROOT / f"models/cost-icelake-server{end}" for end in ("", "-pmu")]


def test_a_program_is_studied(
    tmp_path: Path,
    toolchain: Toolchain,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tree = REPO_ROOT / "compiler_opt_perf/cost/testdata"
    program = Program(name="pressure", source_package="none", sources=("pressure.c",))
    names = {"default", "8 registers", "random 1 (1)"}
    chosen = tuple(v for v in variants.VARIANTS if v.name in names)
    monkeypatch.setattr(variant_builds, "VARIANTS", chosen)
    monkeypatch.setattr(bench, "_PARTS", ("stack-slots",))
    monkeypatch.setattr(bench, "_DRAWN_BLOCKS", 5000)
    monkeypatch.setitem(TIMED, "pressure", lambda _: Workload(program, tree, ("40",)))

    def study(*steps: str) -> str:
        return bench.study(
            ["pressure"],
            tmp_path,
            toolchain,
            steps=steps,
            rounds=4,
            processor=max(os.sched_getaffinity(0)),
            cpu=CPU,
            models=MODELS,
        )

    assert study(*bench.STEPS) == (tmp_path / "report.md").read_text()

    found = json.loads((tmp_path / "results.json").read_text())["pressure"]
    assert [v["name"] for v in found["variants"]] == [v.name for v in chosen]
    assert found["variants"][0]["measured"] == 1
    counts = [v["predicted"]["count"] for v in found["variants"]]
    assert counts[0] < min(counts[1:])
    for name in ("granite", "granite-pmu"):
        learned = [v["predicted"][name] for v in found["variants"]]
        assert learned[0] < min(learned[1:])
        assert found["evaluators"][name]["evaluation_in_runs"] > 0
    drawn = found["evaluators"]["mca-pmu on a drawn path"]
    assert drawn["evaluation_in_runs"] > 0
    assert "mca-pmu without stack-slots" in (tmp_path / "report.md").read_text()
    assert "<svg" in (tmp_path / "report.html").read_text()

    # What is done is not done again.
    folder = tmp_path / "pressure"
    notes = ("ir/built", "rounds", "traced", "profiled", "drawn", "variants/default/linked")
    files = [*tmp_path.rglob("*.o"), *(folder / f"{name}.json" for name in notes)]
    before = {path: path.stat().st_mtime_ns for path in files}
    assert study("build", "record", "evaluate", "measure") == ""
    assert {path: path.stat().st_mtime_ns for path in before} == before

    # A damaged note is, and it alone.
    (folder / "traced.json").write_text('{"inputs"')
    caplog.clear()
    assert study("record") == ""
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"{folder}/traced.json:1:10: not JSON") and "done again" in warning
    changed = {path for path in before if path.stat().st_mtime_ns != before[path]}
    assert changed == {folder / "traced.json"}


def test_two_models_are_told_apart_by_their_evaluator(tmp_path: Path, toolchain: Toolchain) -> None:
    with pytest.raises(StudyError, match="cost-icelake-server is another model granite; compare"):
        bench.study(
            ["lua"], tmp_path, toolchain, steps=[], processor=0, cpu=CPU, models=MODELS[:1] * 2
        )
