# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of corpora, and of the real programs that they are extracted from."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.parameters import Argument, Flag
from compiler_opt_perf.cli.verb import Group, Table
from compiler_opt_perf.policy.problem import PROBLEMS

corpus = Group("corpus", help="Corpora of IR modules, and programs to extract them from.")


@corpus.verb(
    "extract",
    example="corpus extract --problem=inline-size --output=corpus zstd=zstd/compile_commands.json",
)
def extract(
    builds: Annotated[Sequence[str], Argument("PROGRAM=compile_commands.json|PROGRAM=FOLDER...")],
    problem: options.Problem,
    output: Annotated[Path, Flag("folder for the corpora train/ and held_out/")],
    level: Annotated[
        str | None,
        Flag(
            "of optimisation, such as -O2, instead of the problem's own; for a reward of speed",
            type=click.Choice(["-O1", "-O2", "-O3", "-Os", "-Oz"]),
        ),
    ] = None,
    held_out: Annotated[float, Flag("share of modules kept from training")] = 0.3,
    seed: Annotated[int, Flag("of the split")] = 1,
    link_flags: Annotated[str, Flag("options of ThinLTO links that change the code")] = "",
    debug_info: Annotated[
        bool, Flag("keep it, for PMU features; without it modules compile faster, to the same code")
    ] = True,
    trusted: Annotated[
        bool, Flag("you trust the builds: their commands may load plugins and have unknown options")
    ] = False,
) -> None:
    """Extract IR modules with their command lines, split into training and held-out ones."""
    from compiler_opt_perf.corpus.extract import extract_corpus
    from compiler_opt_perf.run.llvm import stock_tool

    databases: dict[str, Path] = {}
    for word in builds:
        name, equals, path = word.partition("=")
        if not equals or not path or name in databases:
            raise UsageError(
                f"{word!r}: expected PROGRAM=compile_commands.json or PROGRAM=FOLDER of a build, "
                "each program once"
            )
        databases[name] = Path(path)
    if not 0 < held_out < 1:
        raise UsageError(f"--held-out={held_out}: expected a share above 0 and below 1")
    try:
        link_words = shlex.split(link_flags)
    except ValueError as error:
        raise UsageError(f"--link-flags={link_flags}: {error}") from None
    train, kept = extract_corpus(
        databases,
        output,
        clang=stock_tool("clang"),
        opt_level=level or PROBLEMS[problem].optimization_level,
        stage=PROBLEMS[problem].corpus_stage,
        held_out_share=held_out,
        link_flags=link_words,
        debug_info=debug_info,
        trusted=trusted,
        seed=seed,
    )
    print(f"{output}: {train} training modules, {kept} held-out modules")


@corpus.verb("show", example="corpus show corpus/train", json_version=1)
def show(
    folder: Annotated[Path, Argument("FOLDER", "of one corpus, with its corpus_description.json")],
) -> Table:
    """Show how many modules of which programs a corpus holds, and how they are compiled."""
    from compiler_opt_perf.corpus.corpus import Corpus, describe, summary

    found = summary(Corpus.load(folder))
    return Table(lambda: describe(found), lambda: found)


@corpus.verb("program", example="corpus program zstd --output=zstd")
def program(
    name: Annotated[str, Argument("PROGRAM", "a wrong one lists those that there are")],
    output: Annotated[Path, Flag("folder for the binary, compile_commands.json and an input")],
    source: Annotated[
        Path | None, Flag("unpacked source package; fetched from Debian when absent")
    ] = None,
) -> None:
    """Build a real program from Debian's sources, ready to be profiled and extracted from."""
    from compiler_opt_perf.corpus.programs import build_program, find_program, program_tree
    from compiler_opt_perf.run.llvm import stock_tool

    found = find_program(name)
    tree = source or program_tree(found)
    print(build_program(found, tree, output, clang=stock_tool("clang")).binary)
