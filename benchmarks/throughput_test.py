# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
from pathlib import Path

import pytest

from benchmarks.common import BenchmarkError
from benchmarks.throughput import study
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import REPO_ROOT

pytestmark = pytest.mark.compiler


def test_each_way_compiles(toolchain: Toolchain, tmp_path: Path) -> None:
    model = REPO_ROOT / "models" / "inline-size"
    with pytest.raises(BenchmarkError, match="no corpus"):
        study(tmp_path, tmp_path, model, toolchain)
    corpus = tmp_path / "corpora" / "one"
    corpus.mkdir(parents=True)
    for name in ("a", "b"):
        source = tmp_path / f"{name}.c"
        source.write_text("int f(int x) { return x * x; }\n")
        words = ["-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", str(source)]
        run_command([stock_tool("clang"), *words, "-o", corpus / f"{name}.bc"])
    description = {"modules": ["a", "b"], "global_command_override": ["-Oz"]}
    (corpus / "corpus_description.json").write_text(json.dumps(description))
    (table,) = study(tmp_path, tmp_path / "corpora", model, toolchain, modules=2, rounds=1)
    plain, *workers = table.rows
    assert plain[:2] == ["plain clang", 2] and plain[3] == 1
    assert len(workers) == 2
    assert all(isinstance(cell, float) and cell > 0 for row in table.rows for cell in row[2:])
