# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of ahead-of-time compilation, on upstream's mock model."""

import shutil
from pathlib import Path

import pytest

from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain import aot
from compiler_opt_perf.toolchain.aot import aot_compile, package_directory
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError
from compiler_opt_perf.toolchain.model_inputs import EVICT_MODEL, INLINE_MODEL, fed_features

_TREE = BUILD / f"llvm-{LLVM_VERSION}"


def _compile_inline(saved_model: Path, output: Path) -> None:
    aot_compile(saved_model, INLINE_MODEL, fed_features(_TREE, INLINE_MODEL), output)


@pytest.fixture
def saved_model(toolchain: Toolchain) -> Path:
    """Upstream's mock inlining policy, which building the set "mock" has generated."""
    assert toolchain.opt.exists()
    return BUILD / "models" / f"mock-{INLINE_MODEL.name}"


@pytest.mark.compiler
def test_a_model_is_compiled_once(saved_model: Path, tmp_path: Path) -> None:
    _compile_inline(saved_model, tmp_path)
    header = tmp_path / "InlinerSizeModel.h"
    text = header.read_text()
    assert "class InlinerSizeModel" in text
    digest = (tmp_path / "InlinerSizeModel.digest").read_text()
    assert text.count(f"#define {INLINE_MODEL.digest} UINT64_C(0x{digest[:16]})") == 1
    assert (tmp_path / "InlinerSizeModel.o").read_bytes().startswith(b"\x7fELF")
    time = header.stat().st_mtime_ns
    _compile_inline(saved_model, tmp_path)
    assert header.stat().st_mtime_ns == time


@pytest.mark.compiler
def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="saved_model.pb is missing"):
        _compile_inline(tmp_path, tmp_path / "output")


@pytest.mark.compiler
def test_a_truncated_model_leaves_no_output(saved_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(saved_model, broken)
    model = broken / "saved_model.pb"
    model.write_bytes(model.read_bytes()[:100])
    with pytest.raises(ToolchainError, match=f"{broken}: TensorFlow cannot compile it"):
        _compile_inline(broken, tmp_path / "output")
    assert not (tmp_path / "output").exists()


@pytest.mark.compiler
def test_another_problems_model_leaves_what_is_there(saved_model: Path, tmp_path: Path) -> None:
    _compile_inline(saved_model, tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    evict = saved_model.with_name(f"mock-{EVICT_MODEL.name}")
    with pytest.raises(ToolchainError, match=f"{evict}: .*'mask', which is no feature"):
        _compile_inline(evict, tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.compiler
def test_a_change_of_the_features_checks_again(saved_model: Path, tmp_path: Path) -> None:
    evict = saved_model.with_name(f"mock-{EVICT_MODEL.name}")
    features = fed_features(_TREE, EVICT_MODEL)
    aot_compile(evict, EVICT_MODEL, features, tmp_path)
    del features["mask"]
    with pytest.raises(ToolchainError, match="'mask', which is no feature"):
        aot_compile(evict, EVICT_MODEL, features, tmp_path)


def test_a_missing_tensorflow_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(aot, "has_tensorflow", lambda: False)
    (tmp_path / "saved_model.pb").touch()
    message = f"{tmp_path}: needs TensorFlow, .* run tools/bootstrap --with=tensorflow"
    with pytest.raises(ToolchainError, match=message):
        aot_compile(tmp_path, INLINE_MODEL, {}, tmp_path / "output")


def test_a_missing_package_is_named() -> None:
    with pytest.raises(ToolchainError, match="no_such_package is not installed .*bootstrap"):
        package_directory("no_such_package")
