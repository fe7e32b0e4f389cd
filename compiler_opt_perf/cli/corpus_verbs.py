# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs of corpora."""

import shlex
from pathlib import Path
from typing import Any

from absl import flags

from compiler_opt_perf.cli.options import define_path, define_problem
from compiler_opt_perf.cli.verb import Table, UsageError, Verb
from compiler_opt_perf.policy.problem import PROBLEMS

# cop corpus


def _define_corpus_extract(values: flags.FlagValues) -> None:
    define_problem(values)
    define_path(values, "output", "folder for the corpora train/ and held_out/")
    flags.DEFINE_float("held_out", 0.3, "share of modules kept from training", flag_values=values)
    flags.DEFINE_integer("seed", 1, "of the split", flag_values=values)
    flags.DEFINE_string(
        "link_flags", "", "options of ThinLTO links that change the code", flag_values=values
    )
    flags.DEFINE_bool(
        "debug_info",
        True,
        "keep it, for PMU features; without it (--nodebug_info) modules compile faster, to the "
        "same code",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "trusted",
        False,
        "you trust the builds: their commands may load plugins and have options that are not "
        "known here",
        flag_values=values,
    )


def _corpus_extract(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.corpus.extract import extract_corpus
    from compiler_opt_perf.run.llvm import stock_tool

    builds: dict[str, Path] = {}
    for word in arguments:
        name, equals, path = word.partition("=")
        if not equals or not path or name in builds:
            raise UsageError(
                f"{word!r}: expected PROGRAM=compile_commands.json or PROGRAM=FOLDER of a build, "
                "each program once"
            )
        builds[name] = Path(path)
    if not builds:
        raise UsageError("expected at least one PROGRAM=compile_commands.json or PROGRAM=FOLDER")
    if not 0 < values.held_out < 1:
        raise UsageError(f"--held-out={values.held_out}: expected a share between 0 and 1")
    problem = PROBLEMS[values.problem]
    output = Path(values.output)
    try:
        link_flags = shlex.split(values.link_flags)
    except ValueError as error:
        raise UsageError(f"--link-flags={values.link_flags}: {error}") from None
    train, held_out = extract_corpus(
        builds,
        output,
        clang=stock_tool("clang"),
        opt_level=problem.optimization_level,
        stage=problem.corpus_stage,
        held_out_share=values.held_out,
        link_flags=link_flags,
        debug_info=values.debug_info,
        trusted=values.trusted,
        seed=values.seed,
    )
    print(f"{output}: {train} training modules, {held_out} held-out modules")


def _define_corpus_show(values: flags.FlagValues) -> None:
    del values


def _corpus_show(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.corpus.corpus import Corpus, describe, summary

    if len(arguments) != 1:
        raise UsageError("expected the folder of one corpus, with its corpus_description.json")
    found = summary(Corpus.load(Path(arguments[0])))
    return Table(lambda: describe(found), lambda: found)


VERBS: tuple[Verb, ...] = (
    Verb(
        "corpus extract",
        "Extract IR modules with their command lines, split into training and held-out ones.",
        "corpus extract --problem=inline-size --output=build/demo/corpus/inline-size"
        " zstd=build/demo/zstd/compile_commands.json",
        _define_corpus_extract,
        _corpus_extract,
        arguments="PROGRAM=compile_commands.json|FOLDER...",
    ),
    Verb(
        "corpus show",
        "Show how many modules of which programs a corpus holds, and how they are compiled.",
        "corpus show build/demo/corpus/inline-size/train",
        _define_corpus_show,
        _corpus_show,
        arguments="FOLDER",
        json_version=1,
    ),
)
