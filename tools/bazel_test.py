# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the files for Bazel repeat is as elsewhere; `make bazel` runs them."""

import ast
import re
from pathlib import Path

from compiler_opt_perf.policies.problem import PROBLEMS


def test_toolchains_know_the_options_of_each_problem(repo_root: Path) -> None:
    text = (repo_root / "tools" / "bazel" / "policy.bzl").read_text()
    found = re.search(r"^MODE_AND_MODEL = (\{.*?^\})", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert ast.literal_eval(found[1]) == {
        problem.name: (problem.mode_option, problem.model_option) for problem in PROBLEMS.values()
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
