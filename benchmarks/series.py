# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does every part of the patch series apply, compile and pass its tests?

The overlay is built with upstream's mock models at the end of each part, in a tree of its own. It
runs the lit tests that name a patch of this part or an earlier one, the C++ unit tests, and
upstream's tests of the ML advisors. It needs `cop toolchain build`, which compiles the models.
A stopped run goes on where it was: a part with the same patches and tests is not repeated.
"""

import hashlib
import itertools
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from absl import logging

from benchmarks.results import Table
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.run.memo import memo, numbered
from compiler_opt_perf.toolchain import overlay
from compiler_opt_perf.toolchain.aot import venv_program
from compiler_opt_perf.toolchain.build import compile_overlay
from compiler_opt_perf.toolchain.installation import MOCK_SET, Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, PATCHES, REPO_ROOT, ToolchainError
from compiler_opt_perf.toolchain.patches import Series
from compiler_opt_perf.toolchain.source import llvm_source
from tools.patches.compiled import run_unit_tests
from tools.patches.export import group_by_patch
from tools.patches.tree import WorkingTree, part_of
from tools.patches.upstream_tests import run_upstream_tests


@dataclass(frozen=True)
class Part:
    """A part of the series with all that comes before it.

    Attributes:
      name: as the folder of its patches.
      commits: (hash, message) of its own patches, in order.
      subjects: of these and of all patches before.
    """

    name: str
    commits: tuple[tuple[str, str], ...]
    subjects: tuple[str, ...]


def split(commits: Sequence[tuple[str, str]]) -> list[Part]:
    """The parts of a series, given its commits."""
    parts = []
    subjects: list[str] = []
    for name, group in itertools.groupby(commits, key=lambda commit: part_of(commit[1])):
        own = tuple(group)
        subjects += [message.partition("\n")[0] for _, message in own]
        parts.append(Part(name, own, tuple(subjects)))
    return parts


class Checked(msgspec.Struct, frozen=True):
    """The time of a build and the tests that pass."""

    build_s: float
    lit_tests: int
    unit_tests: int
    upstream_tests: int


def check_part(tree: WorkingTree, tests: Sequence[Path], build: Path) -> Checked:
    """Builds the tree as it stands and runs `tests` and upstream's.

    Raises:
      ToolchainError: it does not build, or a test fails.
    """
    start = time.monotonic()
    toolchain = compile_overlay(tree, MOCK_SET, build)
    seconds = time.monotonic() - start
    if tests:
        try:
            run_command(
                [venv_program("lit"), "-v", f"--param=tools={toolchain.opt.parent}", *tests],
                cwd=REPO_ROOT,
                timeout_s=3600,
            )
        except CommandError as error:
            raise ToolchainError(f"lit tests fail: {error.stderr}") from error
    units = int(run_unit_tests(tree, build).partition(" ")[0])
    upstream = run_upstream_tests(
        toolchain, tree.source, build / "upstream-lit", overlay.has_development_mode(tree.directory)
    )
    return Checked(seconds, len(tests), units, int(upstream.partition(" ")[0]))


def _checked_out(tree: WorkingTree, part: Part, tests: Sequence[Path], build: Path) -> Checked:
    """The result of `check_part` at the end of a part."""
    logging.info("Part %s, %d patches", part.name, len(part.commits))
    tree.check_out(part.commits[-1][0])
    try:
        return check_part(tree, tests, build)
    except ToolchainError as error:
        raise ToolchainError(f"up to part {part.name}: {error}") from error


def study(folder: Path) -> list[Table]:
    """Checks all parts in a folder.

    Raises:
      ToolchainError: a part does not build, or a test fails.
    """
    # The mock models do not depend on the patches.
    models = Toolchain.load(BUILD / "toolchain" / MOCK_SET).directory / "models"
    shutil.copytree(models, folder / "toolchain" / MOCK_SET / "models", dirs_exist_ok=True)
    tree = WorkingTree(Series(PATCHES), llvm_source(), folder / f"llvm-{LLVM_VERSION}")
    tree.apply()
    rows = []
    parts = split(tree.commits())
    tests_of = group_by_patch(parts[-1].subjects) if parts else {}
    patches = hashlib.sha256()
    for part in parts:
        for commit, _ in part.commits:
            # The change, without the commit's message.
            patches.update(tree.changes(commit).encode())
        tests = sorted(test for subject in part.subjects for test in tests_of.get(subject, []))
        checksums = {str(test.relative_to(REPO_ROOT)): sha256(test) for test in tests}
        inputs = {"patches": patches.hexdigest(), "tests": checksums}
        path = numbered(folder / "passed", inputs)
        checked = memo(path, inputs, Checked, partial(_checked_out, tree, part, tests, folder))
        lines = sum(tree.size(commit) for commit, _ in part.commits)
        rows.append([part.name, len(part.commits), lines, *msgspec.structs.astuple(checked)])
    columns = {
        "part": "text",
        "patches": "integer",
        "lines": "integer",
        "build": "seconds:0",
        "lit tests that pass": "integer",
        "unit tests that pass": "integer",
        "MLGO tests that pass": "integer",
    }
    return [
        Table.of("parts", "The series up to the end of each part: tests that pass.", columns, rows)
    ]
