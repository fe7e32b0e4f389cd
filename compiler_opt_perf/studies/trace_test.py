# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.studies import trace as bench
from compiler_opt_perf.studies.workloads import Built

REPO_ROOT = Path(__file__).parents[2]


def test_a_program_is_measured(tmp_path: Path) -> None:
    source = REPO_ROOT / "compiler_opt_perf/traces/testdata/program.c"
    binary = tmp_path / "program"
    options = ["-fbasic-block-address-map", "-fuse-ld=lld", "-Wl,--build-id", "-O2"]
    run_command([stock_tool("clang"), *options, source, "-lpthread", "-o", binary])
    result = bench.measure(Built(binary, ["turn", "20000"]), tmp_path)
    assert result["blocks"] > 40_000
    assert result["differing_executions"] == 0
    assert result["ratios"]["native"] == 1.0
    table = bench.tables({"turn": result})
    assert table.count("| turn |") == 2
