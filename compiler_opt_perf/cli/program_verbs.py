# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of real programs to try things on."""

from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.options import define_path, optional_path
from compiler_opt_perf.cli.verb import UsageError, Verb

# cop program build


def _define_program_build(values: flags.FlagValues) -> None:
    define_path(values, "output", "folder for the binary, compile_commands.json and an input")
    define_path(
        values, "source", "unpacked source package; fetched from Debian when absent", required=False
    )


def _program_build(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.corpus.program_table import PROGRAMS
    from compiler_opt_perf.corpus.programs import build_program, find_program, program_tree
    from compiler_opt_perf.execution.llvm import stock_tool

    if len(arguments) != 1:
        raise UsageError(f"expected one program: {', '.join(sorted(PROGRAMS))}")
    program = find_program(arguments[0])
    tree = optional_path(values, "source") or program_tree(program)
    output = Path(values.output)
    print(build_program(program, tree, output, clang=stock_tool("clang")).binary)


VERBS: tuple[Verb, ...] = (
    Verb(
        "program build",
        "Build a real program from Debian's sources, ready to be profiled and extracted from.",
        "program build zstd --output=build/demo/zstd",
        _define_program_build,
        _program_build,
        arguments="PROGRAM",
    ),
)
