# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the patch series, on a small source tree and real git."""

import os
import subprocess
from pathlib import Path

import pytest

from compiler_opt_perf.toolchain.layout import PATCHES
from compiler_opt_perf.toolchain.patches import PatchedTree, PatchError, Series

_LINES = "".join(f"line {number}\n" for number in range(1, 31))


def _git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    ).stdout


def _commit(directory: Path, message: str, **files: str) -> None:
    for name, text in files.items():
        (directory / f"{name}.cpp").write_text(text)
    _git(directory, "add", "--all")
    _git(directory, "commit", "--quiet", "--message", message)


@pytest.fixture
def tree(tmp_path: Path) -> PatchedTree:
    """A tree with two applied patches: one edits one.cpp, the other adds three.cpp."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.cpp").write_text(_LINES)
    (source / "two.cpp").write_text(_LINES)
    series = tmp_path / "patches"
    series.mkdir()
    (series / "series").write_text("")
    tree = PatchedTree(Series(series), source, tmp_path / "tree")
    tree.apply()
    _commit(tree.directory, "[MLGO] Edit one\n\nBecause.", one=_LINES.replace("line 5\n", "5\n"))
    _commit(tree.directory, "Add three", three="new\n")
    tree.refresh()
    return tree


def test_refresh_writes_what_apply_reads(tree: PatchedTree, tmp_path: Path) -> None:
    names = [patch.name for patch in tree.series.patches()]
    assert names == ["0001-MLGO-Edit-one.patch", "0002-Add-three.patch"]
    first = tree.series.patches()[0].read_text()
    assert first.startswith("From 0000000000000000000000000000000000000000 ")
    assert "From: Somebody <somebody@example.org>\n" in first
    tree.verify()

    fresh = PatchedTree(tree.series, tree.source, tmp_path / "fresh")
    fresh.apply()
    assert (fresh.directory / "three.cpp").read_text() == "new\n"
    log = _git(fresh.directory, "log", "--format=%an|%s|%b", "-2")
    assert log == "Somebody|Add three|\nSomebody|[MLGO] Edit one|Because.\n\n"
    assert fresh.changed_files() == ["one.cpp", "three.cpp"]


def test_commits_are_the_same_everywhere(tree: PatchedTree, tmp_path: Path) -> None:
    heads = set()
    for name in ("here", "there"):
        other = PatchedTree(tree.series, tree.source, tmp_path / name)
        heads.add(_git(other.apply(), "rev-parse", "HEAD"))
    assert len(heads) == 1


def test_files_that_do_not_change_keep_their_times(tree: PatchedTree) -> None:
    tree.apply(discard=True)
    for file in ("one", "two", "three"):
        os.utime(tree.directory / f"{file}.cpp", (1_000_000_000, 1_000_000_000))
    (tree.series.directory / "series").write_text("0001-MLGO-Edit-one.patch\n")
    (tree.series.directory / "0002-Add-three.patch").unlink()
    tree.apply()
    assert not (tree.directory / "three.cpp").exists()
    assert (tree.directory / "one.cpp").stat().st_mtime == 1_000_000_000
    assert (tree.directory / "two.cpp").stat().st_mtime == 1_000_000_000


def test_a_patch_that_does_not_apply_is_named_with_file_and_hunk(tree: PatchedTree) -> None:
    patch = tree.series.patches()[0]
    patch.write_text(patch.read_text().replace(" line 4\n", " line four\n"))
    before = _git(tree.directory, "rev-parse", "HEAD")
    with pytest.raises(PatchError) as caught:
        tree.apply()
    message = str(caught.value)
    assert message.startswith(f"{patch}: does not apply to LLVM 19.1.7")
    assert "one.cpp: the hunk at line 2 does not match" in message
    assert "tools/patches refresh" in message
    assert _git(tree.directory, "rev-parse", "HEAD") == before
    assert (tree.directory / "three.cpp").exists()


def test_work_in_the_tree_is_kept(tree: PatchedTree) -> None:
    edited = tree.directory / "two.cpp"
    edited.write_text("work in progress\n")
    tree.apply()
    assert edited.read_text() == "work in progress\n"

    (tree.series.directory / "0002-Add-three.patch").unlink()
    (tree.series.directory / "series").write_text("0001-MLGO-Edit-one.patch\n")
    with pytest.raises(PatchError, match="throw away this work") as caught:
        tree.apply()
    assert "two.cpp" in str(caught.value)
    assert edited.read_text() == "work in progress\n"

    _commit(tree.directory, "Finish the work")
    with pytest.raises(PatchError, match="Finish the work"):
        tree.apply()
    tree.apply(discard=True)
    assert edited.read_text() == _LINES


def test_refresh_wants_commits(tree: PatchedTree) -> None:
    (tree.directory / "two.cpp").write_text("not committed\n")
    with pytest.raises(PatchError, match="these edits are in no commit yet") as caught:
        tree.refresh()
    assert "two.cpp" in str(caught.value)


def test_verify_names_the_line_that_is_not_canonical(tree: PatchedTree) -> None:
    patch = tree.series.patches()[1]
    patch.write_text(patch.read_text() + "-- \n2.39.5\n\n")
    with pytest.raises(PatchError, match="not in canonical form") as caught:
        tree.verify()
    lines = patch.read_text().splitlines()
    assert f"{patch}:{lines.index('-- ') + 1}:" in str(caught.value)


def test_series_and_folder_must_agree(tree: PatchedTree) -> None:
    series = tree.series.directory / "series"
    series.write_text("0001-MLGO-Edit-one.patch\n")
    with pytest.raises(PatchError, match="0002-Add-three.patch: not named in"):
        tree.series.patches()
    series.write_text("0001-MLGO-Edit-one.patch\n0002-Add-three.patch\n0003-Lost.patch\n")
    with pytest.raises(PatchError, match="names 0003-Lost.patch, which is not there"):
        tree.series.patches()


def test_a_file_that_is_no_patch_is_named(tree: PatchedTree) -> None:
    patch = tree.series.patches()[1]
    patch.write_text("this is not a patch\n")
    with pytest.raises(PatchError, match="0002-Add-three.patch"):
        tree.apply()


def test_the_projects_series_is_in_order() -> None:
    assert Series(PATCHES).patches()
