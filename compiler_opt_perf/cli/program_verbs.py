# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of real programs to try things on."""

from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.options import (
    define_path,
    define_toolchain,
    optional_path,
    required_model_folder,
)
from compiler_opt_perf.cli.verb import Table, UsageError, Verb
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.toolchain.layout import BUILD

# cop program build


def _define_program_build(values: flags.FlagValues) -> None:
    define_path(values, "output", "folder for the binary, compile_commands.json and an input")
    define_path(
        values, "source", "unpacked source package; fetched from Debian when absent", required=False
    )


def _program_build(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.corpus.program_table import PROGRAMS
    from compiler_opt_perf.corpus.programs import build_program, find_program, program_tree
    from compiler_opt_perf.run.llvm import stock_tool

    if len(arguments) != 1:
        raise UsageError(f"expected one program: {', '.join(sorted(PROGRAMS))}")
    program = find_program(arguments[0])
    tree = optional_path(values, "source") or program_tree(program)
    output = Path(values.output)
    print(build_program(program, tree, output, clang=stock_tool("clang")).binary)


# cop program compare


def _define_program_compare(values: flags.FlagValues) -> None:
    define_path(values, "model", "the policy's folder, for example models/inline-size")
    define_path(values, "output", "where to write the comparison, JSON; `cop report` reads it")
    flags.DEFINE_string(
        "modules",
        str(BUILD / "programs"),
        "folder for the programs' modules, extracted where they are not there yet",
        flag_values=values,
    )
    define_toolchain(values, "toolchain", "dev")
    flags.DEFINE_integer(
        "workers", 0, "processes that compile; 0: one a core", lower_bound=0, flag_values=values
    )


def _program_compare(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.compare.linked import compare_linked, describe, to_json
    from compiler_opt_perf.corpus.program_table import PROGRAMS
    from compiler_opt_perf.corpus.programs import find_program, program_modules
    from compiler_opt_perf.policy.export import load
    from compiler_opt_perf.toolchain.installation import Toolchain

    names = list(dict.fromkeys(arguments))
    if not names:
        raise UsageError(f"expected programs: {', '.join(sorted(PROGRAMS))}")
    for name in names:
        find_program(name)
    model = required_model_folder(values, "model").resolve()
    folder = Path(values.modules).resolve()
    problem = load(model).network.problem
    toolchain = Toolchain.load(Path(values.toolchain))
    programs = {
        name: program_modules(
            name,
            folder / "programs",
            folder / "corpora",
            opt_level=problem.optimization_level,
            stage=problem.corpus_stage,
        )
        for name in names
    }
    linked = compare_linked(model, programs, toolchain, values.workers or None)
    output, written = Path(values.output), to_json(linked)
    write_json(output, written)
    return Table(
        lambda: f"{describe(linked)}Written: {output}\n",
        lambda: {"written": str(output), "comparison": written},
    )


VERBS: tuple[Verb, ...] = (
    Verb(
        "program build",
        "Build a real program from Debian's sources, ready to be profiled and extracted from.",
        "program build zstd --output=build/demo/zstd",
        _define_program_build,
        _program_build,
        arguments="PROGRAM",
    ),
    Verb(
        "program compare",
        "Compare the linked text of real programs with a policy and without.",
        "program compare ninja lua --model=models/inline-size --output=build/linked.json",
        _define_program_compare,
        _program_compare,
        arguments="PROGRAM...",
        json_version=1,
    ),
)
