# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of the parts of runs: what is damaged is named."""

import json
from pathlib import Path

import pytest

from compiler_opt_perf.blocks.block_file import Cpu
from compiler_opt_perf.blocks.run_parts import (
    Head,
    Part,
    PartsError,
    RunBlock,
    RunParts,
    read_parts,
    write_parts,
)
from compiler_opt_perf.run.json_text import JsonError


def parts() -> RunParts:
    head = Head(
        program="lua",
        build_id="0a",
        command=("script.lua",),
        cpu=Cpu("a CPU", "znver3", 25, 1, 1),
        hertz=3.2e9,
        rounds=15,
        blocks=2,
        parts=2,
    )
    blocks = (
        RunBlock(function="f", id=3, address=4096, code="488b07c3", pmu={"l1_miss": (0.25, None)}),
        RunBlock(function="g", id=0, address=4100, code=""),
    )
    fields = {"faults": 2, "elsewhere": 5, "mispredicted": 1, "taken": 7}
    return RunParts(
        head,
        blocks,
        (
            Part(seconds=0.001, executed=((0, 5), (1, 2)), **fields),
            Part(seconds=0.002, executed=((1, 9),), **fields),
        ),
    )


def test_a_file_of_parts(tmp_path: Path) -> None:
    path = tmp_path / "lua.parts"
    write_parts(path, parts())
    found = read_parts(path)
    assert found == parts()
    assert found.executions().tolist() == [[5, 2], [0, 9]]
    assert found.column("seconds").tolist() == [0.001, 0.002]
    assert found.known("l1_miss").tolist() == [0.25, 0]


@pytest.mark.parametrize(
    ("line", "change", "error", "message"),
    [
        (0, {"version": 9}, JsonError, r"lua\.parts:1: .*version"),
        (0, {"parts": 3}, PartsError, r"lua\.parts: has 5 lines.*2 blocks and 3 parts"),
        (1, {"code": "4"}, JsonError, r"lua\.parts:2: .*code: expected hexadecimal"),
        (1, {"pmu": {"l1_miss": [-1]}}, JsonError, r"lua\.parts:2: .*l1_miss"),
        (3, {"seconds": -1}, JsonError, r"lua\.parts:4: .*seconds"),
        (4, {"executed": [[2, 1]]}, PartsError, r"lua\.parts:5: executes a block that the file"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, line: int, change: dict[str, object], error: type[Exception], message: str
) -> None:
    path = tmp_path / "lua.parts"
    write_parts(path, parts())
    lines = path.read_text().splitlines()
    lines[line] = json.dumps(json.loads(lines[line]) | change)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(error, match=message):
        read_parts(path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(PartsError, match="cannot be read"):
        read_parts(tmp_path / "none.parts")
    (tmp_path / "empty.parts").write_text("")
    with pytest.raises(JsonError, match=r"empty\.parts:1"):
        read_parts(tmp_path / "empty.parts")
