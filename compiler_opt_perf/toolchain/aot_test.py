# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of ahead-of-time compilation, on upstream's mock model."""

import shutil
from pathlib import Path

import pytest

from compiler_opt_perf.toolchain.aot import INLINE_MODEL, aot_compile, package_directory
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError


@pytest.fixture
def saved_model(toolchain: Toolchain) -> Path:
    """Upstream's mock inlining policy, which building the set "mock" has generated."""
    assert toolchain.opt.exists()
    return BUILD / "models" / f"mock-{INLINE_MODEL.name}"


def test_a_model_is_compiled_once(saved_model: Path, tmp_path: Path) -> None:
    aot_compile(saved_model, INLINE_MODEL, tmp_path)
    header = tmp_path / "InlinerSizeModel.h"
    assert "class InlinerSizeModel" in header.read_text()
    assert (tmp_path / "InlinerSizeModel.o").read_bytes().startswith(b"\x7fELF")
    time = header.stat().st_mtime_ns
    aot_compile(saved_model, INLINE_MODEL, tmp_path)
    assert header.stat().st_mtime_ns == time


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="saved_model.pb is missing"):
        aot_compile(tmp_path, INLINE_MODEL, tmp_path / "output")


def test_a_truncated_model_leaves_no_output(saved_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(saved_model, broken)
    model = broken / "saved_model.pb"
    model.write_bytes(model.read_bytes()[:100])
    with pytest.raises(ToolchainError, match=f"{broken}: TensorFlow cannot compile it"):
        aot_compile(broken, INLINE_MODEL, tmp_path / "output")
    assert not (tmp_path / "output").exists()


def test_a_missing_package_is_named() -> None:
    with pytest.raises(ToolchainError, match="no_such_package is not installed .*bootstrap"):
        package_directory("no_such_package")
