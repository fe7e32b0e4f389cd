# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rank` on small programs."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rank as bench
from benchmarks import variants
from benchmarks.common import BenchmarkError
from benchmarks.programs.workload import Workload
from benchmarks.programs.workloads import TIMED
from benchmarks.results import Table
from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.toolchain.installation import Toolchain

pytestmark = pytest.mark.compiler

REPO_ROOT = Path(__file__).parents[1]
CPUS = REPO_ROOT / "compiler_opt_perf/blocks/cpus"
MODELS = [REPO_ROOT / f"models/cost-icelake-server{end}" for end in ("", "-pmu")]

Study = Callable[..., list[Table]]


@pytest.fixture
def study_of(tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Studies some variants of one kind of a program."""

    def study(program: str, kind: str, names: set[str], *steps: str, **more: Any) -> list[Table]:
        chosen = tuple(v for v in variants.KINDS[kind].variants if v.name in names)
        kinds = {kind: replace(variants.KINDS[kind], variants=chosen)}
        monkeypatch.setattr(bench, "KINDS", kinds)
        monkeypatch.setattr(bench, "PROGRAMS", (program,))
        monkeypatch.setattr(bench, "_PARTS", ("stack-slots",))
        monkeypatch.setattr(bench, "_DRAWN_BLOCKS", 5000)
        return bench.study(
            [program],
            tmp_path,
            toolchain,
            kinds=[kind],
            steps=steps,
            rounds=4,
            processor=max(os.sched_getaffinity(0)),
            **{"cpu": CPUS / "icelake-server.json", **more},
        )

    return study


def _rows(found: dict[str, Table], table: str) -> list[dict[str, Any]]:
    heads = [column.name for column in found[table].columns]
    return [dict(zip(heads, row, strict=True)) for row in found[table].rows]


@pytest.mark.long(15)
def test_register_allocations_replay_one_run(
    tmp_path: Path,
    study_of: Study,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tree = REPO_ROOT / "compiler_opt_perf/cost/testdata"
    program = Program(name="pressure", source_package="none", sources=("pressure.c",))
    workload = Workload(program, tree, ("80",), shorter=("40",))
    monkeypatch.setitem(TIMED, "pressure", lambda _: workload)

    def study(*steps: str) -> list[Table]:
        names = {"default", "8 registers", "random 1 (1)"}
        return study_of("pressure", "registers", names, *steps, models=MODELS)

    assert study("build", "record", "evaluate") == []
    found = {table.name: table for table in study("measure", "time")}
    rows = _rows(found, "variants")
    assert [row["variant"] for row in rows] == ["default", "8 registers", "random 1 (1)"]
    assert rows[0]["measured"][0] == 0
    # Fewer registers, or decisions at random, cost more.
    for evaluator in ("count", "granite", "granite-pmu"):
        assert min(row[evaluator] for row in rows[1:]) > 0
    evaluation: dict[Any, Any] = {row[0]: row[1] for row in found["evaluation"].rows}
    for evaluator in ("granite", "granite-pmu", "mca-pmu on a drawn path"):
        assert evaluation[evaluator] > 0
    assert "mca-pmu without stack-slots" in [row[0] for row in found["parts"].rows]

    # What is done is not done again.
    folder = tmp_path / "pressure" / "registers"
    default = [f"variants/default/{name}" for name in ("linked", "traced", "judged/profiled")]
    notes = ["ir/built", "rounds", "drawn", "learned/granite", *default]
    files = [*tmp_path.rglob("*.o"), *(folder / f"{name}.json" for name in notes)]
    before = {path: path.stat().st_mtime_ns for path in files}
    study(*bench.STEPS)
    assert {path: path.stat().st_mtime_ns for path in before} == before

    # A damaged note is, and it alone.
    traced = folder / "variants" / "default" / "traced.json"
    traced.write_text('{"inputs"')
    caplog.clear()
    study("record")
    changed = {path for path in before if path.stat().st_mtime_ns != before[path]}
    assert changed == {traced}


def test_inlinings_are_recorded_each(
    tmp_path: Path, study_of: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = TIMED["passed-local"](tmp_path)
    workload = replace(workload, arguments=("200",), shorter=("20",))
    monkeypatch.setitem(TIMED, "passed-local", lambda _: workload)
    names = {"default", "threshold 0", "AutoFDO", "AutoFDO, pinned", "inline-speed"}
    cpu = CPUS / "znver5.json"
    steps = [step for step in bench.STEPS if step != "time"]
    found = study_of("passed-local", "inlining", names, *steps, models=MODELS[:1], cpu=cpu)
    rows = {row["variant"]: row for row in _rows({t.name: t for t in found}, "variants")}
    # The policy inlines what the default inlines; equal code counts once.
    assert set(rows) == names - {"inline-speed"}
    # A call that never runs keeps a local in memory, where the loop waits for its stores.
    pinned = rows["AutoFDO, pinned"]
    assert pinned["mca-pmu"] > 100 > abs(pinned["count"])
    assert rows["AutoFDO"]["mca-pmu"] < 0
    # The model does not know the CPU.
    assert rows["threshold 0"]["granite for icelake-server"] is not None
    folder = tmp_path / "passed-local" / "inlining" / "variants"
    recorded = {path.parent.name for path in folder.glob("*/run.bbwindows")}
    assert recorded == {"default", "threshold-0", "autofdo", "autofdo-pinned"}


def test_two_models_are_told_apart_by_their_evaluator(study_of: Study) -> None:
    with pytest.raises(
        BenchmarkError, match="cost-icelake-server is another model granite; compare"
    ):
        study_of("lua", "registers", {"default"}, models=MODELS[:1] * 2)


def test_what_is_not_built_is_not_measured(study_of: Study) -> None:
    with pytest.raises(BenchmarkError, match=r"lua/registers: no variant is built; run --steps="):
        study_of("lua", "registers", {"default"}, "measure")
