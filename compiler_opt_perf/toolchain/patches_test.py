# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the patch series, on a small source tree and real git."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.toolchain.layout import PATCHES
from compiler_opt_perf.toolchain.patches import PatchedTree, PatchError, Series

_FIRST = "fixes/0001-MLGO-Edit-one.patch"
_SECOND = "profile/0001-Add-three.patch"
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


def _names(patches: Sequence[Path]) -> list[str]:
    """The patches' names in their series: part and file."""
    return [f"{patch.parent.name}/{patch.name}" for patch in patches]


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
    message = "[MLGO] Edit one\n\nBecause.\n\nPart: fixes"
    _commit(tree.directory, message, one=_LINES.replace("line 5\n", "5\n"))
    _commit(tree.directory, "Add three\n\nPart: profile", three="new\n")
    tree.refresh()
    return tree


def test_refresh_writes_what_apply_reads(tree: PatchedTree, tmp_path: Path) -> None:
    assert _names(tree.series.patches()) == [_FIRST, _SECOND]
    first = tree.series.patches()[0].read_text()
    assert first.startswith("From 0000000000000000000000000000000000000000 ")
    assert "From: Somebody <somebody@example.org>\n" in first
    tree.verify()

    fresh = PatchedTree(tree.series, tree.source, tmp_path / "fresh")
    fresh.apply()
    assert (fresh.directory / "three.cpp").read_text() == "new\n"
    log = _git(fresh.directory, "log", "--format=%an|%s|%b", "-2")
    assert log == (
        "Somebody|Add three|Part: profile\n\nSomebody|[MLGO] Edit one|Because.\n\nPart: fixes\n\n"
    )
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
    (tree.series.directory / "series").write_text(f"{_FIRST}\n")
    (tree.series.directory / _SECOND).unlink()
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
    assert message.startswith(f"{patch}: does not apply to LLVM 22.1.8")
    assert "one.cpp: the hunk at line 2 does not match" in message
    assert "tools/patches/series refresh" in message
    assert _git(tree.directory, "rev-parse", "HEAD") == before
    assert (tree.directory / "three.cpp").exists()


def test_work_in_the_tree_is_kept(tree: PatchedTree) -> None:
    edited = tree.directory / "two.cpp"
    edited.write_text("work in progress\n")
    tree.apply()
    assert edited.read_text() == "work in progress\n"

    (tree.series.directory / _SECOND).unlink()
    (tree.series.directory / "series").write_text(f"{_FIRST}\n")
    with pytest.raises(PatchError, match="throw away the work below") as caught:
        tree.apply()
    assert "two.cpp" in str(caught.value)
    assert edited.read_text() == "work in progress\n"

    _commit(tree.directory, "Finish the work")
    with pytest.raises(PatchError, match="Finish the work"):
        tree.apply()
    tree.apply(discard=True)
    assert edited.read_text() == _LINES


def _change_series(tree: PatchedTree) -> str:
    """Edits the second patch as somebody else's change of the series would; returns its text."""
    patch = tree.series.patches()[1]
    patch.write_text(patch.read_text().replace("+new\n", "+newer\n"))
    return patch.read_text()


def test_refresh_does_not_overwrite_a_series_that_has_changed(
    tree: PatchedTree, tmp_path: Path
) -> None:
    _commit(tree.directory, "[MLGO] Edit two\n\nPart: profile", two="work\n")
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
    _git(tree.directory, "format-patch", "-o", f"{tree.directory}.work", "refs/overlay/applied")
    tree.apply(discard=True)
    for patch in sorted(Path(f"{tree.directory}.work").iterdir()):
        _git(tree.directory, "am", "--quiet", "--3way", "--keep-non-patch", str(patch))
    assert _names(tree.refresh()) == [_FIRST, _SECOND, "profile/0002-MLGO-Edit-two.patch"]
    assert (tree.directory / "three.cpp").read_text() == "newer\n"
    assert (tree.directory / "two.cpp").read_text() == "work\n"


def test_refresh_removes_patches_whose_commits_are_gone(tree: PatchedTree) -> None:
    _git(tree.directory, "reset", "--quiet", "--hard", "HEAD~1")
    assert _names(tree.refresh()) == [_FIRST]
    assert _names(list(tree.series.directory.rglob("*.patch"))) == [_FIRST]


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
    tree: PatchedTree, message: str, expected: str
) -> None:
    _commit(tree.directory, message, two="work\n")
    with pytest.raises(PatchError, match=expected):
        tree.refresh()
    assert _names(tree.series.patches()) == [_FIRST, _SECOND]


def test_verify_wants_a_patch_in_the_folder_of_its_part(tree: PatchedTree) -> None:
    directory = tree.series.directory
    moved = "fixes/0002-Add-three.patch"
    (directory / _SECOND).rename(directory / moved)
    (directory / "series").write_text(f"{_FIRST}\n{moved}\n")
    with pytest.raises(PatchError, match=f"{moved}: should be named {_SECOND}"):
        tree.verify()


@pytest.mark.parametrize("killed_before", ["reset", "clean", "update-ref"])
def test_an_interrupted_checkout_is_taken_up_again(
    tree: PatchedTree, killed_before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _change_series(tree)
    git, checking_out = PatchedTree._git, PatchedTree._check_out

    def stop(self: PatchedTree, *arguments: str, **options: Any) -> str:
        if arguments[0] == killed_before:
            raise KeyboardInterrupt
        return git(self, *arguments, **options)

    def check_out(self: PatchedTree, commit: str) -> None:
        monkeypatch.setattr(PatchedTree, "_git", stop)
        checking_out(self, commit)

    monkeypatch.setattr(PatchedTree, "_check_out", check_out)
    with pytest.raises(KeyboardInterrupt):
        tree.apply()
    monkeypatch.undo()
    # What a git that was killed leaves behind.
    (tree.directory / ".git" / "index.lock").touch()
    with pytest.raises(PatchError, match="or not completely; run tools/patches/series apply"):
        tree.refresh()
    tree.apply()
    assert (tree.directory / "three.cpp").read_text() == "newer\n"
    assert len(tree.refresh()) == 2
    tree.verify()


def test_the_lock_of_a_running_git_is_respected(tree: PatchedTree) -> None:
    _change_series(tree)
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
    assert "Before." in _git(tree.directory, "log", "--format=%b", "-1")


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
    series.write_text(f"{_FIRST}\n")
    with pytest.raises(PatchError, match=f"{_SECOND}: not named in"):
        tree.series.patches()
    series.write_text(f"{_FIRST}\n{_SECOND}\nprofile/0002-Lost.patch\n")
    with pytest.raises(PatchError, match="names profile/0002-Lost.patch, which is not there"):
        tree.series.patches()


def test_a_file_that_is_no_patch_is_named(tree: PatchedTree) -> None:
    patch = tree.series.patches()[1]
    patch.write_text("this is not a patch\n")
    with pytest.raises(PatchError, match=_SECOND):
        tree.apply()


def test_the_projects_series_is_in_order() -> None:
    assert Series(PATCHES).patches()
