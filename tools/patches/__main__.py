# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program behind `tools/patches/series`: applies, writes back and checks the patch series."""

import argparse
import sys
from pathlib import Path

from compiler_opt_perf.run.command import CommandError
from compiler_opt_perf.run.files import FileWriteError, exclusive
from compiler_opt_perf.run.progress import log_to_stderr
from compiler_opt_perf.toolchain.build import check_overlay
from compiler_opt_perf.toolchain.installation import MOCK_SET, Toolchain
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError
from compiler_opt_perf.toolchain.source import llvm_source, llvm_tests
from tools.patches.compiled import check_each_patch, run_unit_tests
from tools.patches.export import exported_tests, group_by_patch
from tools.patches.tree import WorkingTree
from tools.patches.upstream_tests import compare_with_stock, run_upstream_tests


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/patches/series", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    apply = actions.add_parser("apply", help="apply the series in build/llvm-22.1.8")
    apply.add_argument(
        "--discard", action="store_true", help="throw away work in the tree that no patch has"
    )
    actions.add_parser("refresh", help="write the tree's commits back to llvm_patches")
    actions.add_parser("verify", help="check that the series applies and is in canonical form")
    actions.add_parser(
        "check-overlay", help="check that the overlay compiles everything that the patches affect"
    )
    export = actions.add_parser("export", help="write the series for git am, with its lit tests")
    export.add_argument("--output", required=True, help="folder for the patches")
    actions.add_parser("unit", help="build and run the series' C++ unit tests")
    actions.add_parser("each", help="check that each patch compiles and is formatted by itself")
    upstream = actions.add_parser("upstream", help="run upstream's own lit tests on the tools")
    upstream.add_argument(
        "--wide", action="store_true", help="compare the suites around with the stock tools, too"
    )
    return parser.parse_args()


def _run_upstream(wide: bool) -> str:
    toolchain = Toolchain.load(BUILD / "toolchain" / MOCK_SET)
    log_to_stderr()
    with exclusive(BUILD / "upstream-lit.lock"):
        if wide:
            return compare_with_stock(toolchain, llvm_tests(), BUILD / "upstream-wide")
        return run_upstream_tests(toolchain, llvm_source(), BUILD / "upstream-lit")


def main() -> None:
    options = _parse()
    try:
        if options.action == "check-overlay":
            plan = check_overlay()
            print(f"sound: {len(plan.units())} translation units are compiled")
            return
        if options.action == "upstream":
            print(_run_upstream(options.wide).rstrip())
            return
        tree = WorkingTree.in_build()
        if options.action == "unit":
            tree.apply()
            print(run_unit_tests(tree))
            return
        if options.action == "each":
            log_to_stderr()
            tree.apply()
            print(check_each_patch(tree))
            return
        if options.action == "export":
            tree.apply()
            subjects = [message.partition("\n")[0] for _, message in tree.commits()]
            files = exported_tests(group_by_patch(subjects))
            print(*tree.export(Path(options.output), files), sep="\n")
        elif options.action == "apply":
            print(tree.apply(discard=options.discard))
        elif options.action == "refresh":
            print(*tree.refresh(), sep="\n")
        else:
            tree.verify()
            print(f"{len(tree.series.patches())} patches apply and are in canonical form")
    except (ToolchainError, CommandError, FileWriteError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
