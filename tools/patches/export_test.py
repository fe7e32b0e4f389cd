# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the export: the places of tests and inputs, and that `git am` takes the patches."""

from pathlib import Path

import pytest

from compiler_opt_perf.toolchain.layout import PATCHES
from compiler_opt_perf.toolchain.patches import PatchError, Series
from compiler_opt_perf.toolchain.testing import git
from tools.patches.export import exported_tests, group_by_patch, lit_tests
from tools.patches.tree import WorkingTree

_FILES = {
    "Inline/one.test": "PATCH: [MLGO] Edit\nRUN: opt %S/Inputs/a.ll %S/../Inputs/shared/*\n",
    "Inline/Inputs/a.ll": "a\n",
    "Inline/Inputs/unused.ll": "not taken\n",
    "Inputs/shared/model": "m\n",
    "Inputs/seal.py": "seal\n",
    "RegAlloc/two.ll": "; Why.\n; PATCH: Add\n; RUN: llc -x=development %s && %seal "
    "%S/../PMUProfile/Inputs/p.json\n",
    "PMUProfile/Inputs/p.json": "{}\n",
    "DevMode/three.c": "// PATCH: Add\n// RUN: clang -c %s\n",
    "ThinLTO/four.test": "PATCH: Add\nRUN: clang -flto=thin -c %S/Inputs/c.c\nRUN: ld.lld c.o\n",
    "ThinLTO/Inputs/c.c": "int c;\n",
    "TraceCost/five.test": "RUN: llvm-trace-cost\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in _FILES.items():
        (tmp_path / "lit" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lit" / name).write_text(text)
    return tmp_path / "lit"


def test_tests_go_where_llvm_has_such(root: Path) -> None:
    files = exported_tests(group_by_patch(["[MLGO] Edit", "Add"], root), root)
    place = "llvm/test/Transforms/Inline/ML/policies"
    assert sorted(files["[MLGO] Edit"]) == [
        f"{place}/Inputs/a.ll",
        f"{place}/Inputs/shared/model",
        f"{place}/lit.local.cfg",
        f"{place}/one.test",
    ]
    assert files["[MLGO] Edit"][f"{place}/one.test"] == (
        b"RUN: opt %S/Inputs/a.ll %S/Inputs/shared/*\n"
    )
    place = "llvm/test/CodeGen/MLRegAlloc/policies"
    assert files["Add"][f"{place}/two.ll"] == (
        b"; Why.\n; REQUIRES: litert, pmu-profiles\n"
        b"; RUN: llc -x=development %s && %seal %S/Inputs/p.json\n"
    )
    assert files["Add"][f"{place}/Inputs/seal.py"] == b"seal\n"
    assert "clang/test/CodeGen/mlgo/three.c" in files["Add"]
    assert "cross-project-tests/mlgo/Inputs/c.c" in files["Add"]


def test_every_test_of_the_series_names_a_patch(root: Path) -> None:
    assert "TraceCost" not in {path.parent.name for path in lit_tests(root)}
    with pytest.raises(
        PatchError, match=r"two.ll: names 'Add', which is not the subject of any patch"
    ):
        group_by_patch(["[MLGO] Edit"], root)
    (root / "Inline" / "one.test").write_text("RUN: opt\n")
    with pytest.raises(PatchError, match=r"one.test: names no patch"):
        group_by_patch(["Add"], root)


def test_an_input_that_is_not_there_is_named(root: Path) -> None:
    (root / "Inline" / "Inputs" / "a.ll").unlink()
    with pytest.raises(PatchError, match=r"one.test: %S/Inputs/a.ll: no such input"):
        exported_tests(group_by_patch(["[MLGO] Edit", "Add"], root), root)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"RegAlloc/three.c": _FILES["DevMode/three.c"]}, "another test"),
        (
            {
                "DevMode/five.test": "PATCH: Add\nRUN: clang -flto=thin -c %S/Inputs/c.c\n",
                "DevMode/Inputs/c.c": "int another;\n",
            },
            "another file",
        ),
    ],
)
def test_two_files_do_not_become_one(root: Path, files: dict[str, str], reason: str) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    with pytest.raises(PatchError, match=rf"{reason} would become .*; rename one"):
        exported_tests(group_by_patch(["[MLGO] Edit", "Add"], root), root)


def test_git_takes_the_exported_series(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.cpp").write_text("old\n")
    series = tmp_path / "patches"
    series.mkdir()
    (series / "series").write_text("")
    tree = WorkingTree(Series(series), source, tmp_path / "tree")
    tree.apply()

    for subject, text in (("[MLGO] Edit", "new\n"), ("Add", "newer\n")):
        (tree.directory / "one.cpp").write_text(text)
        git(tree.directory, "commit", "-qam", f"{subject}\n\nBecause.\n\nPart: fixes")
    tree.refresh()
    files = exported_tests(group_by_patch(["[MLGO] Edit", "Add"], root), root)
    patches = tree.export(tmp_path / "export", files)
    assert [patch.name for patch in patches] == ["0001-MLGO-Edit.patch", "0002-Add.patch"]
    tree.verify()

    git(source, "init", "-q")
    git(source, "add", ".")
    git(source, "commit", "-qm", "base")
    # As docs/build-clang.md says: without the option git takes [MLGO] off.
    git(source, "am", "-q", "--keep-non-patch", *map(str, patches))
    assert git(source, "log", "-2", "--format=%s") == "Add\n[MLGO] Edit\n"
    assert (source / "one.cpp").read_text() == "newer\n"
    assert (source / "llvm/test/CodeGen/MLRegAlloc/policies/two.ll").is_file()
    assert "Part:" not in git(source, "log", "--format=%B")


def test_the_projects_tests_name_their_patches() -> None:
    texts = (patch.read_text() for patch in Series(PATCHES).patches())
    subjects = [_subject(text) for text in texts]
    tests = group_by_patch(subjects)
    assert sum(map(len, tests.values())) == len(lit_tests())
    assert exported_tests(tests)


def _subject(patch: str) -> str:
    """The subject of a patch file, which may go on in a second line."""
    lines = patch.partition("\nSubject: ")[2].splitlines()
    subject = lines[0].partition("] ")[2]
    for line in lines[1:]:
        if not line.startswith(" "):
            break
        subject += line
    return subject
