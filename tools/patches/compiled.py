# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of the series that compile: the C++ unit tests, and each patch by itself."""

import re
from pathlib import Path

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import exclusive
from compiler_opt_perf.toolchain import overlay
from compiler_opt_perf.toolchain.build import compile_target, configure, write_plan
from compiler_opt_perf.toolchain.layout import BUILD, PATCHES, ToolchainError
from compiler_opt_perf.toolchain.patches import PatchedTree
from tools.patches.each import check_each, compile_commands
from tools.patches.tree import WorkingTree


def run_unit_tests(tree: PatchedTree, build_directory: Path = BUILD) -> str:
    """Builds the series' C++ unit tests, with upstream's mock models, and runs them.

    The set "mock" must have been built. The tree is compiled as it is.

    Returns:
      A line that begins with the number of tests, which may be 0.

    Raises:
      ToolchainError: the tests do not build, or one fails.
    """
    directory = build_directory / "overlay"
    with exclusive(directory / ".lock"):
        write_plan(tree, directory / "plan.cmake")
        configure(tree, build_directory)
        if "set(OVERLAY_UNIT_TESTS )" in (directory / "plan.cmake").read_text():
            return "0 unit tests"
        compile_target("unit_tests", "the unit tests", directory)
    try:
        output = run_command([directory / "unit_tests", "--gtest_brief=1"], timeout_s=600).stdout
    except CommandError as error:
        raise ToolchainError(f"unit tests: {error}") from error
    found = re.search(r"^\[  PASSED  \] (\d+) tests?\.", output, re.MULTILINE)
    if found is None or not int(found[1]):
        raise ToolchainError(f"{directory / 'unit_tests'}: ran no test:\n{output}")
    return f"{found[1]} unit tests pass"


def check_each_patch(tree: WorkingTree, build_directory: Path = BUILD) -> str:
    """Checks that each commit of the tree compiles and is formatted by itself.

    Returns:
      A line with the numbers of patches and compilations.

    Raises:
      PatchError: a patch does not compile or is formatted otherwise.
    """
    directory = build_directory / "overlay"
    with exclusive(directory / ".lock"):
        write_plan(tree, directory / "plan.cmake")
        configure(tree, build_directory)
        compile_target("shared_headers", "the headers that most units share", directory)
        database = run_command(["ninja", "-C", directory, "-t", "compdb"], timeout_s=60).stdout
    allowed = overlay.load_allowances(PATCHES / "overlay.toml")
    return check_each(tree, compile_commands(database, tree.directory), allowed)
