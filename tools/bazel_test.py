# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the files for Bazel repeat is as elsewhere; `make bazel` runs them."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from compiler_opt_perf.policy.problem import PROBLEMS


def test_toolchains_know_the_options_of_each_problem(repo_root: Path) -> None:
    text = (repo_root / "tools" / "bazel" / "policy.bzl").read_text()
    found = re.search(r"^MODE_AND_MODEL = (\{.*?^\})", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert ast.literal_eval(found[1]) == {
        problem.name: (problem.mode_option, problem.model_option) for problem in PROBLEMS.values()
    }


class _Unknown:
    """What a BUILD file loads or is given, where its value does not matter."""

    def __call__(self, *_: Any, **__: Any) -> Self:
        return self

    def __add__(self, _: Any) -> Self:
        return self

    __radd__ = __add__


def _test_files(folder: Path) -> list[Path]:
    """What the targets `pytest` of the folder's BUILD.bazel run: each file as often as it is named.

    The language of BUILD files is a part of Python.
    """
    found: list[Path] = []
    below = [path.parent for path in folder.glob("*/**/BUILD.bazel")]
    unknown = _Unknown()

    def glob(include: list[str], exclude: Sequence[str] = (), **_: Any) -> list[str]:
        matches = [{*folder.glob(one)} for one in include]
        paths = set().union(*matches).difference(*(folder.glob(one) for one in exclude))
        # A folder with targets of its own is another package.
        return [
            str(path.relative_to(folder))
            for path in sorted(paths)
            if not any(path.is_relative_to(other) for other in below)
        ]

    def load(_: str, *names: str) -> None:
        for name in names:
            scope.setdefault(name, unknown)

    def pytest(srcs: list[str], **_: Any) -> None:
        found.extend(folder / name for name in srcs)

    scope: dict[str, Any] = {"glob": glob, "load": load, "pytest": pytest}
    scope |= dict.fromkeys(("exports_files", "filegroup", "package"), unknown)
    exec((folder / "BUILD.bazel").read_text(), scope)
    return found


def test_each_test_file_belongs_to_one_target(repo_root: Path) -> None:
    folders = [path for path in repo_root.iterdir() if path.is_dir() and path.name[0] != "."]
    folders = [path for path in folders if path.name != "build" and not path.is_symlink()]
    there = [path for folder in folders for path in folder.rglob("*_test.py")]
    targets = [path.parent for folder in folders for path in folder.rglob("BUILD.bazel")]
    stubs = repo_root / "tools" / "bazel" / "stubs"
    named = [
        path
        for folder in targets
        if not folder.is_relative_to(stubs)
        for path in _test_files(folder)
    ]
    assert Counter(named) == Counter(there)


def test_rooms_rest_on_the_rooms_that_the_documentation_shows(repo_root: Path) -> None:
    text = (repo_root / "compiler_opt_perf" / "BUILD.bazel").read_text()
    found = re.search(r"^RESTS_ON = (\{.*?^\})", text, re.MULTILINE | re.DOTALL)
    page = (repo_root / "docs" / "design" / "architecture.md").read_text()
    picture = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    shown = [line.partition("──>") for line in picture.splitlines()]
    assert found is not None
    assert ast.literal_eval(found[1]) == {
        room.strip(): re.findall(r"\w+", below) for room, _, below in shown
    }


def test_each_subsystem_of_the_lit_tests_is_a_target(repo_root: Path) -> None:
    text = (repo_root / "lit_tests" / "BUILD.bazel").read_text()
    tests = (repo_root / "lit_tests").glob("[A-Z]*/*.*")
    folders = {path.parent.name for path in tests} - {"Inputs"}
    assert set(re.findall(r'^        "(\w+)",$', text, re.MULTILINE)) == folders


def test_the_workspace_names_repositories_that_there_are(repo_root: Path) -> None:
    text = (repo_root / "WORKSPACE").read_text()
    stubs = {path.name for path in (repo_root / "tools" / "bazel" / "stubs").iterdir()}
    (listed,) = re.findall(r"for name in \((.*)\)", text)
    assert set(re.findall(r'"(\w+)"', listed)) == stubs
    for name in re.findall(r'build_file = "//tools/bazel:(.*)"', text):
        assert (repo_root / "tools" / "bazel" / name).is_file()
        assert f"//tools/bazel:{name}" in (repo_root / "MODULE.bazel").read_text()
