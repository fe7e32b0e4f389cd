# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the check of each patch, on small series with real git and the real compiler."""

import json
import subprocess
from pathlib import Path

import pytest

from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.patches import PatchError, Series
from compiler_opt_perf.toolchain.testing import commit
from tools.patches.each import check_each, compile_commands
from tools.patches.tree import WorkingTree

pytestmark = pytest.mark.compiler

_HEADER = "llvm/include/llvm/Analysis/Advice.h"
_USER = "llvm/lib/Analysis/Advice.cpp"
_OTHER = "llvm/lib/Analysis/Other.cpp"
_ADDED = "llvm/include/llvm/Analysis/Added.h"
_UNITS = (_USER, _OTHER)


def _series(tmp_path: Path, *commits: dict[str, str]) -> WorkingTree:
    """A tree whose commits write these files; the first is the source."""
    source = tmp_path / "source"
    for name, text in commits[0].items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    series = tmp_path / "patches"
    series.mkdir()
    (series / "series").write_text("")
    tree = WorkingTree(Series(series), source, tmp_path / "tree")
    tree.apply()
    for number, files in enumerate(commits[1:], start=1):
        for name, text in files.items():
            (tree.directory / name).parent.mkdir(parents=True, exist_ok=True)
            (tree.directory / name).write_text(text)
        commit(tree.directory, f"Number {number}\n\nPart: fixes")
    return tree


def _commands(tree: WorkingTree) -> dict[str, list[str]]:
    clang = str(stock_tool("clang++"))
    include = f"-I{tree.directory}/llvm/include"
    database = [
        {
            "file": str(tree.directory / unit),
            "command": f"{clang} {include} -MD -MT x.o -MF x.d -o x.o -c {tree.directory / unit}",
        }
        for unit in _UNITS
    ]
    return compile_commands(json.dumps(database), tree.directory)


_SOURCE = {
    _HEADER: "int advice();\n",
    _USER: '#include "llvm/Analysis/Advice.h"\nint advice() { return 1; }\n',
    _OTHER: '#include "llvm/Analysis/Advice.h"\nint other() { return advice(); }\n',
}


def test_patches_that_stand_alone_pass(tmp_path: Path) -> None:
    tree = _series(
        tmp_path,
        _SOURCE,
        {_USER: _SOURCE[_USER].replace("1", "2")},
        {
            _HEADER: "int advice(int Mode = 0);\n",
            _USER: '#include "llvm/Analysis/Advice.h"\nint advice(int Mode) { return Mode; }\n',
        },
    )
    # The second patch changes a header with two users.
    assert "2 patches compile by themselves and are formatted (3 units)" in check_each(
        tree, _commands(tree)
    )


def test_what_a_later_patch_mends_is_named(tmp_path: Path) -> None:
    tree = _series(
        tmp_path,
        _SOURCE,
        # Does not compile by itself, though the patch after it mends that.
        {_USER: _SOURCE[_USER].replace("1", "Mode")},
        # Changes a header, so that another user of it does not compile any more.
        {
            _HEADER: "int advice(int Mode);\n",
            _USER: '#include "llvm/Analysis/Advice.h"\nint advice(int Mode) { return Mode; }\n',
        },
        # Includes a header that a later patch adds, and has a line that is not in LLVM's style.
        {_OTHER: '#include "llvm/Analysis/Added.h"\nint  other() { return advice( 1 ); }\n'},
        {
            _ADDED: '#include "llvm/Analysis/Advice.h"\n',
            _OTHER: '#include "llvm/Analysis/Added.h"\nint other() { return advice(1); }\n',
        },
    )
    with pytest.raises(PatchError) as caught:
        check_each(tree, _commands(tree))
    first, *faults = str(caught.value).splitlines()
    assert first.startswith("4 faults in patches by themselves; mend each in its own commit of ")
    assert [
        fault.partition(": error: ")[0].replace(f"{tree.directory}/", "") for fault in faults
    ] == [
        f"fixes: Number 1: {_USER}: {_USER}:2:23",
        f"fixes: Number 2: {_OTHER}: {_OTHER}:2:22",
        f"fixes: Number 3: {_OTHER}: {_ADDED}:1:2",
        f"fixes: Number 3: {_OTHER}:2: clang-format writes it otherwise",
    ]
    assert "undeclared identifier 'Mode'" in faults[0]
    assert "comes with a later patch" in faults[2]
    # Nothing in the tree was touched.
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tree.directory, capture_output=True, check=True
    )
    assert status.stdout == b""
