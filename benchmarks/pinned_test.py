# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`pinned` on one program that has the fault."""

from pathlib import Path

import pytest

from benchmarks import pinned
from benchmarks.common import PASSED_LOCAL
from benchmarks.programs.workload import Workload
from benchmarks.programs.workloads import COUNTED
from benchmarks.results import Table
from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.toolchain.installation import Toolchain


def _program(_: Path) -> Workload:
    program = Program("passed", "none", (PASSED_LOCAL.name,), libraries=("-lstdc++",))
    return Workload(program, PASSED_LOCAL.parent, ("50",))


@pytest.mark.long(15)
@pytest.mark.compiler
def test_a_copy_frees_the_hot_loop_of_memory(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COUNTED, "passed", _program)
    monkeypatch.setattr(pinned, "PROGRAMS", ("passed",))
    monkeypatch.setattr(pinned, "TIMED", "10")
    tables = {table.name: table for table in pinned.study(["passed"], tmp_path, toolchain)}

    example = {row[0]: row[2] for row in tables["example"].rows}
    for way in ("AutoFDO", "PGO", "ThinLTO and PGO"):
        copied, without = example[f"{way} and copies"], example[way]
        assert isinstance(copied, int) and isinstance(without, int)
        assert copied < without

    instructions = _row(tables["instructions"])
    assert instructions["locals copied"] == 1
    assert all(
        isinstance(change, float) and change < 0
        for way, change in instructions.items()
        if way.endswith("and copies")
    )
    assert set(_row(tables["text"])) == set(instructions)


def _row(table: Table) -> dict[str, object]:
    return {column.name: cell for column, cell in zip(table.columns, table.rows[0], strict=True)}
