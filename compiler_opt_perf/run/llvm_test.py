# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import LLVM_VERSION, MissingToolError, stock_tool


@pytest.mark.compiler
def test_installed_tool_has_the_version() -> None:
    assert f"version {LLVM_VERSION}" in run_command([stock_tool("llc"), "--version"]).stdout


def test_missing_tool() -> None:
    with pytest.raises(MissingToolError, match=r"bin/llvm-nothing: no such program; run tools/"):
        stock_tool("llvm-nothing")
