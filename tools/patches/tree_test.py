# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Upkeep of a patch series, on a small source tree and with real git."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.toolchain.patches import PatchError, Series
from compiler_opt_perf.toolchain.testing import (
    FIRST,
    SECOND,
    commit,
    commit_series,
    git,
    write_source,
)
from tools.patches.tree import WorkingTree


def _names(patches: Sequence[Path]) -> list[str]:
    """The patches' names in their series: part and file."""
    return [f"{patch.parent.name}/{patch.name}" for patch in patches]


@pytest.fixture
def tree(tmp_path: Path) -> WorkingTree:
    """A tree with two applied patches: one edits one.cpp, the other adds three.cpp."""
    source = write_source(tmp_path / "source")
    series = tmp_path / "patches"
    series.mkdir()
    (series / "series").write_text("")
    tree = WorkingTree(Series(series), source, tmp_path / "tree")
    tree.apply()
    commit_series(tree.directory)
    tree.refresh()
    return tree


def _change_series(tree: WorkingTree) -> str:
    """Edits the second patch as somebody else's change of the series would; returns its text."""
    patch = tree.series.patches()[1]
    patch.write_text(patch.read_text().replace("+new\n", "+newer\n"))
    return patch.read_text()


def test_refresh_writes_what_apply_reads(tree: WorkingTree, tmp_path: Path) -> None:
    assert _names(tree.series.patches()) == [FIRST, SECOND]
    first = tree.series.patches()[0].read_text()
    assert first.startswith("From 0000000000000000000000000000000000000000 ")
    assert "From: Somebody <somebody@example.org>\n" in first
    tree.verify()

    fresh = WorkingTree(tree.series, tree.source, tmp_path / "fresh")
    fresh.apply()
    assert (fresh.directory / "three.cpp").read_text() == "new\n"
    log = git(fresh.directory, "log", "--format=%an|%s|%b", "-2")
    assert log == (
        "Somebody|Add three|Part: profile\n\nSomebody|[MLGO] Edit one|Because.\n\nPart: fixes\n\n"
    )
    assert fresh.changed_files() == ["one.cpp", "three.cpp"]


def test_refresh_does_not_overwrite_a_series_that_has_changed(
    tree: WorkingTree, tmp_path: Path
) -> None:
    commit(tree.directory, "[MLGO] Edit two\n\nPart: profile", two="work\n")
    changed = _change_series(tree)
    with pytest.raises(PatchError, match="changed since it was applied; refresh would overwrite"):
        tree.refresh()
    assert tree.series.patches()[1].read_text() == changed

    # The way out that both messages advise keeps the change and the work.
    with pytest.raises(
        PatchError, match="git format-patch -o .*--discard.*git am --3way --keep-non-patch"
    ) as caught:
        tree.apply()
    assert f"{tree.directory}.work" in str(caught.value)
    git(tree.directory, "format-patch", "-o", f"{tree.directory}.work", "refs/overlay/applied")
    tree.apply(discard=True)
    for patch in sorted(Path(f"{tree.directory}.work").iterdir()):
        git(tree.directory, "am", "--quiet", "--3way", "--keep-non-patch", str(patch))
    assert _names(tree.refresh()) == [FIRST, SECOND, "profile/0002-MLGO-Edit-two.patch"]
    assert (tree.directory / "three.cpp").read_text() == "newer\n"
    assert (tree.directory / "two.cpp").read_text() == "work\n"


def test_refresh_removes_patches_whose_commits_are_gone(tree: WorkingTree) -> None:
    git(tree.directory, "reset", "--quiet", "--hard", "HEAD~1")
    assert _names(tree.refresh()) == [FIRST]
    assert _names(list(tree.series.directory.rglob("*.patch"))) == [FIRST]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Edit two", "'Edit two' does not say which part .*fixes, profile, features"),
        ("Edit two\n\nPart: others", "'Edit two' does not say which part"),
        ("Edit two\n\nPart: fixes\nand more", "'Edit two' does not say which part"),
        ("Edit two\n\nPart: fixes", "'Edit two' belongs to the part 'fixes', but .*'profile'"),
    ],
)
def test_every_commit_belongs_to_a_part_and_parts_are_in_order(
    tree: WorkingTree, message: str, expected: str
) -> None:
    commit(tree.directory, message, two="work\n")
    with pytest.raises(PatchError, match=expected):
        tree.refresh()
    assert _names(tree.series.patches()) == [FIRST, SECOND]


def test_verify_wants_a_patch_in_the_folder_of_its_part(tree: WorkingTree) -> None:
    directory = tree.series.directory
    moved = "fixes/0002-Add-three.patch"
    (directory / SECOND).rename(directory / moved)
    (directory / "series").write_text(f"{FIRST}\n{moved}\n")
    with pytest.raises(PatchError, match=f"{moved}: should be named {SECOND}"):
        tree.verify()


@pytest.mark.parametrize("killed_before", ["reset", "clean", "update-ref"])
def test_an_interrupted_checkout_is_taken_up_again(
    tree: WorkingTree, killed_before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _change_series(tree)
    git, checking_out = WorkingTree._git, WorkingTree._check_out

    def stop(self: WorkingTree, *arguments: str, **options: Any) -> str:
        if arguments[0] == killed_before:
            raise KeyboardInterrupt
        return git(self, *arguments, **options)

    def check_out(self: WorkingTree, commit: str) -> None:
        monkeypatch.setattr(WorkingTree, "_git", stop)
        checking_out(self, commit)

    monkeypatch.setattr(WorkingTree, "_check_out", check_out)
    with pytest.raises(KeyboardInterrupt):
        tree.apply()
    monkeypatch.undo()
    # A git that was killed leaves its lock behind.
    (tree.directory / ".git" / "index.lock").touch()
    with pytest.raises(PatchError, match="or not completely; run tools/patches/series apply"):
        tree.refresh()
    tree.apply()
    assert (tree.directory / "three.cpp").read_text() == "newer\n"
    assert len(tree.refresh()) == 2
    tree.verify()


def test_refresh_wants_commits(tree: WorkingTree) -> None:
    (tree.directory / "two.cpp").write_text("not committed\n")
    with pytest.raises(PatchError, match="these edits are in no commit yet") as caught:
        tree.refresh()
    assert "two.cpp" in str(caught.value)


def test_verify_names_the_line_that_is_not_canonical(tree: WorkingTree) -> None:
    patch = tree.series.patches()[1]
    patch.write_text(patch.read_text() + "-- \n2.39.5\n\n")
    with pytest.raises(PatchError, match="not in canonical form") as caught:
        tree.verify()
    lines = patch.read_text().splitlines()
    assert f"{patch}:{lines.index('-- ') + 1}:" in str(caught.value)
