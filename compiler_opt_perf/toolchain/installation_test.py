# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.run.llvm import LLVM_PREFIX, stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain, build_advice
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError


def test_another_llvm_is_no_toolchain() -> None:
    """Its clang would refuse our options; nothing is to be installed in its place."""
    candidate = rf"build it with `cop toolchain build --toolchain=candidate .*`, in {BUILD}"
    with pytest.raises(ToolchainError, match=rf"llvm-22: is another LLVM, not .*; {candidate}"):
        Toolchain.load(LLVM_PREFIX)
    clang = stock_tool("clang")
    with pytest.raises(ToolchainError, match=rf"{clang}: is a file; name the folder that has bin/"):
        Toolchain.load(clang)


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    assert build_advice(tmp_path / "new", {}).endswith(
        f"--output={tmp_path}/new`, in {tmp_path}/new"
    )
    assert str(tmp_path) not in build_advice(tmp_path, {})
    (tmp_path / "models").mkdir()
    assert build_advice(tmp_path, {}).endswith(f", in {tmp_path}")
