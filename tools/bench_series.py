# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks every prefix of the patch series: that it applies, compiles and passes its tests.

    build/venv/bin/python tools/bench_series.py [--output=build/bench-series] [--first=9]

A prefix is built as an overlay with upstream's mock models, in a tree of its own. Its tests are
those that the messages of its patches name, `Test: lit_tests/DevMode/{inline,library}.test`, and
upstream's of the ML advisors. Needs `cop toolchain build --set=mock`, which compiles the models. A
run that was stopped goes on where it was: what passed with the same patches and tests is not done
again, until the folder is removed.
"""

import glob
import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags, logging

from compiler_opt_perf.cli.verb import parse_program
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import write_json, write_text
from compiler_opt_perf.execution.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain import overlay
from compiler_opt_perf.toolchain.aot import venv_program
from compiler_opt_perf.toolchain.build import MOCK_SET, compile_overlay
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, PATCHES, REPO_ROOT, ToolchainError
from compiler_opt_perf.toolchain.patches import PatchedTree, Series
from compiler_opt_perf.toolchain.source import llvm_source
from compiler_opt_perf.toolchain.upstream_tests import run_upstream_tests

_HEADER = """\
| | patch | lines | build | lit tests | upstream's MLGO tests |
|---:|---|---:|---:|---:|---|
"""


def named_tests(message: str) -> list[str]:
    """Paths and patterns of the tests that a commit message names after "Test:"."""
    text = re.search(r"^Test: ((?:.+\n?)+)", message, re.MULTILINE)
    words = re.findall(r"lit_tests/[^\s,{}]*(?:\{[^{}]*\}[^\s,{}]*)?", text[1]) if text else []
    tests = []
    for word in words:
        start, _, rest = word.partition("{")
        choices, _, end = rest.partition("}")
        tests += [f"{start}{choice}{end}" for choice in choices.split(",")] if rest else [start]
    return [test.rstrip(".") for test in tests]


def find_tests(patterns: Sequence[str]) -> list[str]:
    """The files that `patterns` name, relative to the repository.

    Raises:
      ToolchainError: a pattern names none.
    """
    files: set[str] = set()
    for pattern in patterns:
        found = glob.glob(pattern, root_dir=REPO_ROOT)
        if not found:
            raise ToolchainError(
                f"{pattern}: no such test, but a patch names it; correct the patch's message"
            )
        files.update(found)
    return sorted(files)


def check_prefix(tree: PatchedTree, tests: Sequence[str], build: Path) -> str:
    """Builds the tree as it stands and runs `tests` and upstream's.

    Returns:
      Time of the build and counts of the tests, as cells of a table.

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
    upstream = run_upstream_tests(
        toolchain, tree.source, build / "upstream-lit", overlay.has_development_mode(tree.directory)
    )
    return f"{seconds:.0f} s | {len(tests)} pass | {upstream}"


def main(argv: Sequence[str]) -> None:
    values = flags.FlagValues()
    flags.DEFINE_string("output", str(BUILD / "bench-series"), "folder", flag_values=values)
    flags.DEFINE_integer("first", 1, "patches of the shortest prefix to check", flag_values=values)
    parse_program(argv, values, __doc__ or "")
    logging.set_verbosity(logging.INFO)
    build = Path(values.output).absolute()
    # The mock models do not depend on the patches.
    models = Toolchain.load(BUILD / "toolchain" / MOCK_SET).directory / "models"
    shutil.copytree(models, build / "toolchain" / MOCK_SET / "models", dirs_exist_ok=True)
    series = Series(PATCHES)
    tree = PatchedTree(series, llvm_source(), build / f"llvm-{LLVM_VERSION}")
    tree.apply()
    passed = build / "passed.json"
    results: dict[str, str] = json.loads(passed.read_text()) if passed.is_file() else {}
    patterns: list[str] = []
    rows = ""
    patches = hashlib.sha256()
    for number, ((commit, message), patch) in enumerate(
        zip(tree.commits(), series.patches(), strict=True), start=1
    ):
        # What it changes, not its message.
        patches.update(patch.read_bytes().partition(b"\n---\n")[2])
        patterns += named_tests(message)
        if number < values.first:
            continue
        subject = message.partition("\n")[0]
        tests = find_tests(patterns)
        digest = patches.copy()
        for test in tests:
            digest.update((REPO_ROOT / test).read_bytes())
        key = digest.hexdigest()
        if key not in results:
            logging.info("Prefix of %d patches: %s", number, subject)
            tree.check_out(commit)
            try:
                results[key] = check_prefix(tree, tests, build)
            except ToolchainError as error:
                sys.exit(f"error: patches 1 to {number}, '{subject}': {error}")
            write_json(passed, results)
        rows += f"| {number} | {subject} | {tree.size(commit)} | {results[key]} |\n"
        write_text(build / "report.md", _HEADER + rows)
    print(_HEADER + rows, end="")


if __name__ == "__main__":
    try:
        main(sys.argv)
    except ToolchainError as error:
        sys.exit(f"error: {error}")
