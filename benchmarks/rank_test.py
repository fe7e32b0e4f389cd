# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rank` on one small program."""

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rank as bench
from benchmarks import variant_builds, variants
from benchmarks.common import BenchmarkError
from benchmarks.programs.workload import Workload
from benchmarks.programs.workloads import TIMED
from benchmarks.results import Table
from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.toolchain.installation import Toolchain

pytestmark = pytest.mark.compiler

REPO_ROOT = Path(__file__).parents[1]
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

    monkeypatch.setattr(bench, "PROGRAMS", ("pressure",))

    def study(*steps: str) -> list[Table]:
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

    assert study("build", "record", "evaluate") == []
    found = {table.name: table for table in study("measure")}
    heads = [column.name for column in found["variants"].columns]
    rows: list[dict[str, Any]] = [
        dict(zip(heads, row, strict=True)) for row in found["variants"].rows
    ]
    assert [row["variant"] for row in rows] == [variant.name for variant in chosen]
    assert rows[0]["measured"][0] == 0
    # Fewer registers, or decisions at random, cost more.
    for evaluator in ("count", "granite", "granite-pmu"):
        assert min(row[evaluator] for row in rows[1:]) > 0
    evaluation: dict[Any, Any] = {row[0]: row[1] for row in found["evaluation"].rows}
    for evaluator in ("granite", "granite-pmu", "mca-pmu on a drawn path"):
        assert evaluation[evaluator] > 0
    assert "mca-pmu without stack-slots" in [row[0] for row in found["tau"].rows]

    # What is done is not done again.
    folder = tmp_path / "pressure"
    notes = ("ir/built", "rounds", "traced", "profiled", "drawn", "variants/default/linked")
    files = [*tmp_path.rglob("*.o"), *(folder / f"{name}.json" for name in notes)]
    before = {path: path.stat().st_mtime_ns for path in files}
    study(*bench.STEPS)
    assert {path: path.stat().st_mtime_ns for path in before} == before

    # A damaged note is, and it alone.
    (folder / "traced.json").write_text('{"inputs"')
    caplog.clear()
    study("record")
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"{folder}/traced.json:1:10: not JSON") and "done again" in warning
    changed = {path for path in before if path.stat().st_mtime_ns != before[path]}
    assert changed == {folder / "traced.json"}


def test_two_models_are_told_apart_by_their_evaluator(tmp_path: Path, toolchain: Toolchain) -> None:
    with pytest.raises(
        BenchmarkError, match="cost-icelake-server is another model granite; compare"
    ):
        bench.study(
            ["lua"], tmp_path, toolchain, steps=[], processor=0, cpu=CPU, models=MODELS[:1] * 2
        )
