# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from pathlib import Path

import pytest

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.studies.common import StudyError
from compiler_opt_perf.studies.throughput import study
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT


def test_each_way_compiles(toolchain: Toolchain, tmp_path: Path) -> None:
    model = REPO_ROOT / "models" / "inline-size"
    with pytest.raises(StudyError, match="no corpus"):
        study(tmp_path, model, toolchain)
    corpus = tmp_path / "corpora" / "one"
    corpus.mkdir(parents=True)
    # By size, the last one is compiled in a process of its own; it has nothing to decide.
    calls = {"a": "", "b": "", "c": "int g(int x) { return x; } int h(int x) { return x; }"}
    for name, call in calls.items():
        source = tmp_path / f"{name}.c"
        source.write_text(f"int f(int x) {{ return x * x; }} {call}\n")
        words = ["-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", str(source)]
        run_command([stock_tool("clang"), *words, "-o", corpus / f"{name}.bc"])
    description = {"modules": ["a", "b", "c"], "global_command_override": ["-Oz"]}
    (corpus / "corpus_description.json").write_text(json.dumps(description))
    lines = study(tmp_path / "corpora", model, toolchain, modules=3, rounds=1).splitlines()
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in lines[2:6]]
    assert [(row[0], row[1]) for row in rows] == [
        ("plain clang", "3"),
        ("our worker, bytes of text", "3"),
        ("our worker, log and bytes by function", "3"),
        ("a new process with TensorFlow", "1"),
    ]
    assert all(float(word) > 0 for row in rows for word in row[2:4])
    assert float(rows[0][3]) == 1
    assert "the import of TensorFlow" in lines[-1]
