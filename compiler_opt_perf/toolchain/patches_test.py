# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Applying a patch series, on a small source tree and with real git."""

import os
import shutil
from pathlib import Path

import pytest

from compiler_opt_perf.toolchain.layout import PATCHES
from compiler_opt_perf.toolchain.patches import PatchedTree, PatchError, Series
from compiler_opt_perf.toolchain.testing import (
    FIRST,
    LINES,
    SECOND,
    commit,
    commit_series,
    git,
    write_source,
)


@pytest.fixture
def tree(tmp_path: Path) -> PatchedTree:
    """A tree with two applied patches: one edits one.cpp, the other adds three.cpp."""
    source = write_source(tmp_path / "source")
    # Somebody's own repository, in which the patches were made.
    author = tmp_path / "author"
    shutil.copytree(source, author)
    git(author, "init", "--quiet")
    commit(author, "base")
    commit_series(author)
    series = tmp_path / "patches"
    for name, revision in ((FIRST, "HEAD~1"), (SECOND, "HEAD")):
        (series / name).parent.mkdir(parents=True)
        (series / name).write_text(git(author, "format-patch", "--stdout", "-1", revision))
    (series / "series").write_text(f"{FIRST}\n{SECOND}\n")
    tree = PatchedTree(Series(series), source, tmp_path / "tree")
    tree.apply()
    return tree


def test_each_patch_becomes_a_commit(tree: PatchedTree) -> None:
    assert (tree.directory / "three.cpp").read_text() == "new\n"
    log = git(tree.directory, "log", "--format=%an|%s|%b", "-2")
    assert log == (
        "Somebody|Add three|Part: profile\n\nSomebody|[MLGO] Edit one|Because.\n\nPart: fixes\n\n"
    )
    assert tree.changed_files() == ["one.cpp", "three.cpp"]


def test_commits_are_the_same_everywhere(tree: PatchedTree, tmp_path: Path) -> None:
    heads = set()
    for name in ("here", "there"):
        other = PatchedTree(tree.series, tree.source, tmp_path / name)
        heads.add(git(other.apply(), "rev-parse", "HEAD"))
    assert len(heads) == 1


def test_files_that_do_not_change_keep_their_times(tree: PatchedTree) -> None:
    tree.apply(discard=True)
    for file in ("one", "two", "three"):
        os.utime(tree.directory / f"{file}.cpp", (1_000_000_000, 1_000_000_000))
    (tree.series.directory / "series").write_text(f"{FIRST}\n")
    (tree.series.directory / SECOND).unlink()
    tree.apply()
    assert not (tree.directory / "three.cpp").exists()
    assert (tree.directory / "one.cpp").stat().st_mtime == 1_000_000_000
    assert (tree.directory / "two.cpp").stat().st_mtime == 1_000_000_000


def test_a_patch_that_does_not_apply_is_named_with_file_and_hunk(tree: PatchedTree) -> None:
    patch = tree.series.patches()[0]
    patch.write_text(patch.read_text().replace(" line 4\n", " line four\n"))
    before = git(tree.directory, "rev-parse", "HEAD")
    with pytest.raises(PatchError) as caught:
        tree.apply()
    message = str(caught.value)
    assert message.startswith(f"{patch}: does not apply to LLVM 22.1.8")
    assert "one.cpp: the hunk at line 2 does not match" in message
    assert "tools/patches/series refresh" in message
    assert git(tree.directory, "rev-parse", "HEAD") == before
    assert (tree.directory / "three.cpp").exists()


def test_work_in_the_tree_is_kept(tree: PatchedTree) -> None:
    edited = tree.directory / "two.cpp"
    edited.write_text("work in progress\n")
    tree.apply()
    assert edited.read_text() == "work in progress\n"

    (tree.series.directory / SECOND).unlink()
    (tree.series.directory / "series").write_text(f"{FIRST}\n")
    with pytest.raises(PatchError, match="throw away the work below") as caught:
        tree.apply()
    assert "two.cpp" in str(caught.value)
    assert edited.read_text() == "work in progress\n"

    commit(tree.directory, "Finish the work")
    with pytest.raises(PatchError, match="Finish the work"):
        tree.apply()
    tree.apply(discard=True)
    assert edited.read_text() == LINES


def test_the_lock_of_a_running_git_is_respected(tree: PatchedTree) -> None:
    patch = tree.series.patches()[1]
    patch.write_text(patch.read_text().replace("+new\n", "+newer\n"))
    lock = tree.directory / ".git" / "index.lock"
    lock.touch()
    for _ in range(2):
        with pytest.raises(PatchError, match="index.lock: another git is at work"):
            tree.apply()
    assert lock.exists()


def test_the_users_git_settings_change_nothing(
    tree: PatchedTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text("[mailinfo]\n\tscissors = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    patch = tree.series.patches()[1]
    patch.write_text(patch.read_text().replace("\n---\n", "\nBefore.\n-- >8 --\nAfter.\n---\n"))
    tree.apply()
    assert "Before." in git(tree.directory, "log", "--format=%b", "-1")


def test_series_and_folder_must_agree(tree: PatchedTree) -> None:
    series = tree.series.directory / "series"
    series.write_text(f"{FIRST}\n")
    with pytest.raises(PatchError, match=f"{SECOND}: not named in"):
        tree.series.patches()
    series.write_text(f"{FIRST}\n{SECOND}\nprofile/0002-Lost.patch\n")
    with pytest.raises(PatchError, match="names profile/0002-Lost.patch, which is not there"):
        tree.series.patches()


def test_a_file_that_is_no_patch_is_named(tree: PatchedTree) -> None:
    patch = tree.series.patches()[1]
    patch.write_text("this is not a patch\n")
    with pytest.raises(PatchError, match=SECOND):
        tree.apply()


def test_the_projects_series_is_in_order() -> None:
    assert Series(PATCHES).patches()
