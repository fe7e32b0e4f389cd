# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of source trees: a user's tree is copied and checked, downloads fail with a remedy."""

from pathlib import Path

import pytest

from compiler_opt_perf.execution.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain.layout import ToolchainError
from compiler_opt_perf.toolchain.source import (
    LLVM_PARTS,
    _deb_entries,
    debian_source,
    llvm_source,
    llvm_version,
)


def _write_tree(root: Path, version: str) -> Path:
    major, minor, patch = version.split(".")
    for part in LLVM_PARTS:
        if "." in Path(part).name:
            (root / part).parent.mkdir(parents=True, exist_ok=True)
            (root / part).write_text(f"{part}\n")
        else:
            (root / part).mkdir(parents=True, exist_ok=True)
            (root / part / "file").write_text(f"{part}\n")
    (root / "cmake" / "Modules").mkdir()
    (root / "cmake" / "Modules" / "LLVMVersion.cmake").write_text(
        f"set(LLVM_VERSION_MAJOR {major})\n"
        f"set(LLVM_VERSION_MINOR {minor})\n"
        f"set(LLVM_VERSION_PATCH {patch})\n"
    )
    return root


def test_version_is_read_from_the_tree(tmp_path: Path) -> None:
    assert llvm_version(_write_tree(tmp_path, "20.1.0")) == "20.1.0"


def test_a_tree_of_another_version_is_refused(tmp_path: Path) -> None:
    tree = _write_tree(tmp_path / "tree", "18.1.8")
    with pytest.raises(ToolchainError, match="this is LLVM 18.1.8, but .* 19.1.7") as caught:
        llvm_source(tree, tmp_path / "build")
    assert str(tree) in str(caught.value)
    assert not (tmp_path / "build" / "sources" / f"llvm-{LLVM_VERSION}").exists()


def test_a_folder_that_is_no_llvm_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no LLVM source tree"):
        llvm_source(tmp_path / "nowhere", tmp_path / "build")


def test_an_incomplete_tree_is_refused(tmp_path: Path) -> None:
    tree = _write_tree(tmp_path / "tree", LLVM_VERSION)
    (tree / "clang" / "lib" / "file").unlink()
    (tree / "clang" / "lib").rmdir()
    with pytest.raises(ToolchainError, match="clang/lib is missing"):
        llvm_source(tree, tmp_path / "build")


def test_a_users_tree_is_copied_and_copied_again_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = _write_tree(tmp_path / "tree", LLVM_VERSION)
    (tree / "mlir").mkdir()
    monkeypatch.setenv("LLVM_SRC", str(tree))
    copy = llvm_source(build=tmp_path / "build")
    assert (copy / "llvm" / "lib" / "file").read_text() == "llvm/lib\n"
    assert not (copy / "mlir").exists()

    marker = copy / "marker"
    marker.touch()
    assert llvm_source(build=tmp_path / "build") == copy
    assert marker.exists(), "an unchanged tree is not copied again"

    (tree / "llvm" / "lib" / "file").write_text("edited\n")
    llvm_source(build=tmp_path / "build")
    assert (copy / "llvm" / "lib" / "file").read_text() == "edited\n"
    assert not marker.exists()


def test_the_systems_mirror_is_used_without_its_lists_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real apt-get, on a system of our own whose lists have never been fetched.
    (tmp_path / "sources.list").write_text(
        "deb http://mirror.example/debian bookworm main\n"
        "deb http://other.example/things stable main\n"
    )
    (tmp_path / "lists" / "partial").mkdir(parents=True)
    settings = tmp_path / "apt.conf"
    settings.write_text(
        f'Dir::Etc::SourceList "{tmp_path}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'
        f'Dir::State::Lists "{tmp_path}/lists/";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(settings))
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"VERSION_CODENAME": "bookworm"})
    assert _deb_entries() == [("http://mirror.example/debian/", "bookworm")]


def test_a_failed_download_is_tried_twice_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls"
    fake = tmp_path / "bin" / "apt-get"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" >> {log}\necho no route to host >&2\nexit 100\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    with pytest.raises(ToolchainError, match="nosuchpackage could not be downloaded") as caught:
        debian_source("nosuchpackage", tmp_path / "build")
    assert "no route to host" in str(caught.value)
    calls = log.read_text().splitlines()
    assert sum(call.endswith(" update") for call in calls) == 2
    # The system's own lists and sources are left alone.
    assert all(f"Dir::State::Lists={tmp_path}" in call for call in calls if "update" in call)
    assert not list((tmp_path / "build" / "sources" / "archive").iterdir())
