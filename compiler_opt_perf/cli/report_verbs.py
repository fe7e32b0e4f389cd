# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs that compare policies and report on them and on their trainings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from compiler_opt_perf.cli.options import (
    define_path,
    define_problem,
    define_profiles,
    define_toolchain,
    html_path,
    required_model_folder,
)
from compiler_opt_perf.cli.verb import Table, UsageError, Verb
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.toolchain.layout import BUILD

if TYPE_CHECKING:
    from compiler_opt_perf.compare.training_run import TrainingRun
    from compiler_opt_perf.train.differences import Differences

# cop compare, cop report


def _define_compare(values: flags.FlagValues) -> None:
    define_problem(values)
    define_path(values, "corpus", "corpus of modules that the policy was not trained on")
    define_path(values, "model", "the policy's folder, as `cop train` writes it")
    define_profiles(values)
    define_path(values, "output", "where to write the comparison, JSON")
    flags.DEFINE_string(
        "toolchain",
        str(BUILD / "toolchain" / "release"),
        "folder of the patched tools that have the policy compiled in, for release mode",
        flag_values=values,
    )
    flags.DEFINE_string(
        "development_toolchain",
        str(BUILD / "toolchain" / "dev"),
        "folder of the patched tools for development and interactive mode; may be the same",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "compile_time",
        "auto",
        ["auto", "instructions", "processor-time"],
        "what to measure of compilations: instructions are counted by the processor or else by "
        "QEMU, which takes 15 to 30 times as long; auto counts if either can, else takes times",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "repetitions",
        None,
        "measured pairs of compilations a module; by default 3 if the processor counts, 2 if QEMU "
        "does, 7 for times",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "seed", 1, "of the order of measured compilations, and of intervals", flag_values=values
    )


def _compare(values: Any, arguments: list[str]) -> Table:
    from compiler_opt_perf.compare.comparison import compare
    from compiler_opt_perf.compare.comparison_tables import describe
    from compiler_opt_perf.compare.modes import require_compiled_in
    from compiler_opt_perf.compare.subject import Subject, policy_in
    from compiler_opt_perf.compare.summary import to_json
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.corpus.profiles import Profiles
    from compiler_opt_perf.toolchain.installation import Toolchain

    model = required_model_folder(values, "model")
    policy = policy_in(model, values.problem)
    problem = PROBLEMS[values.problem] if policy is None else policy.network.problem
    corpus = Corpus.load(Path(values.corpus))
    release = Toolchain.load(Path(values.toolchain))
    require_compiled_in(release, problem, model)
    comparison = compare(
        Subject(
            problem,
            Toolchain.load(Path(values.development_toolchain)),
            release,
            model,
            Profiles.parse(values.profile),
            policy,
        ),
        corpus,
        compile_time=values.compile_time,
        repetitions=values.repetitions,
        seed=values.seed,
    )
    output, written = Path(values.output), to_json(comparison)
    write_json(output, written)
    return Table(
        lambda: f"{describe(comparison)}Written: {output}\n",
        lambda: {"written": str(output), "comparison": written},
    )


def _define_report(values: flags.FlagValues) -> None:
    define_path(values, "output", "the page to write, HTML")
    flags.DEFINE_multi_string(
        "training", [], "PROBLEM=FOLDER of a training run whose curve to show", flag_values=values
    )


def _report(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.compare.comparison import read_comparison
    from compiler_opt_perf.compare.linked import is_linked, read_linked
    from compiler_opt_perf.compare.training_run import read_curve
    from compiler_opt_perf.pages.comparison import write_page

    if not arguments:
        raise UsageError(
            "expected comparisons, as `cop compare` and `cop program compare` write them"
        )
    curves = {}
    for word in values.training:
        name, equals, folder = word.partition("=")
        if not equals or name not in PROBLEMS:
            raise UsageError(f"--training={word}: expected PROBLEM=FOLDER")
        curves[name] = read_curve(Path(folder) / "curve.jsonl")
    output = Path(values.output)
    paths = [Path(path) for path in arguments]
    linked = [path for path in paths if is_linked(path)]
    comparisons = [read_comparison(path) for path in paths if path not in linked]
    write_page(comparisons, curves, output, [read_linked(path) for path in linked])
    print(output)


# cop training show


def _define_training_show(values: flags.FlagValues) -> None:
    flags.DEFINE_multi_string(
        "corpus",
        [],
        "folder with corpora; what the policy does differently is told of their modules, of those "
        "for validation if they are among them; takes as many compilations as --sites asks for",
        flag_values=values,
    )
    define_profiles(values)
    define_toolchain(values, "toolchain", "dev")
    flags.DEFINE_integer(
        "sites",
        24,
        "decisions of a module that are taken back, drawn at random if there are more",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_integer("seed", 1, "of the draws", flag_values=values)
    flags.DEFINE_integer(
        "workers", 0, "processes that compile; 0: one a core", lower_bound=0, flag_values=values
    )
    flags.DEFINE_integer("top", 20, "decisions to show", lower_bound=1, flag_values=values)
    define_path(values, "html", "write a page with plots to this file instead", required=False)


def _training_show(values: Any, arguments: list[str]) -> Table | None:
    from compiler_opt_perf.compare.training_run import read_run
    from compiler_opt_perf.compare.training_tables import describe, document

    if len(arguments) != 1:
        raise UsageError("expected the folder of one training, as `cop train` writes it")
    html = html_path(values)
    run = read_run(Path(arguments[0]))
    differences = _differences(values, run) if values.corpus else None
    if html is None:
        return Table(
            lambda: describe(run, differences, values.top), lambda: document(run, differences)
        )
    # Loads matplotlib.
    from compiler_opt_perf.pages.training import write_page

    write_page(run, differences, html)
    print(html)
    return None


def _differences(values: Any, run: "TrainingRun") -> "Differences":
    from compiler_opt_perf.compare.training_run import find_modules
    from compiler_opt_perf.corpus.profiles import Profiles
    from compiler_opt_perf.policy.export import load
    from compiler_opt_perf.run.pool import Pool
    from compiler_opt_perf.toolchain.installation import Toolchain
    from compiler_opt_perf.train.compilation import Compiler
    from compiler_opt_perf.train.differences import find_differences

    if run.policy is None:
        raise UsageError(f"--corpus: {run.path} has no policy yet; leave it out to see the rest")
    modules = run.choose(find_modules([Path(word) for word in values.corpus]))
    compiler = Compiler.of(
        Toolchain.load(Path(values.toolchain)),
        load(run.policy).network.problem,
        Profiles.parse(values.profile),
    )
    with Pool(values.workers or None) as pool:
        return find_differences(
            compiler, run.policy, modules, pool, most=values.sites, seed=values.seed
        )


VERBS: tuple[Verb, ...] = (
    Verb(
        "compare",
        "Compare a policy with the compiler's default on modules: size, score, compile time.",
        "compare --problem=inline-size --corpus=build/demo/corpus/inline-size/held_out"
        " --model=build/demo/inline-size/policy --profile=build/demo/zstd.pmu.json"
        " --output=build/demo/inline-size.json",
        _define_compare,
        _compare,
        json_version=1,
    ),
    Verb(
        "report",
        "Write one HTML page with tables and plots from comparisons and training curves.",
        "report build/demo/inline-size.json --training=inline-size=build/demo/inline-size"
        " --output=build/demo/report.html",
        _define_report,
        _report,
        arguments="COMPARISON.json...",
    ),
    Verb(
        "training show",
        "Show a training, ended or not: results, curve, labels, what its policy does differently.",
        "training show build/train-inline --corpus=build/train-inline/corpora --html=training.html",
        _define_training_show,
        _training_show,
        arguments="FOLDER",
        json_version=1,
    ),
)
