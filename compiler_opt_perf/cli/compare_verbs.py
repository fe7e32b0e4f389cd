# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs that compare policies with the compiler's default."""

from collections.abc import Sequence
from pathlib import Path

import click
from click import UsageError

from compiler_opt_perf.cli import options
from compiler_opt_perf.cli.options import required_model_folder
from compiler_opt_perf.cli.verb import Group, Table
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.toolchain.layout import BUILD

compare = Group("compare", help="Policies against the compiler's default, on modules and programs.")


@compare.command(
    "policy",
    example="compare policy --problem=inline-size"
    " --corpus=build/demo/corpus/inline-size/held_out --model=build/demo/inline-size/policy"
    " --profile=build/demo/zstd.pmu.json --output=build/demo/inline-size.json",
    json_version=1,
)
@options.problem
@options.path_flag(
    "--corpus", "corpus of modules that the policy was not trained on", required=True
)
@options.path_flag("--model", "the policy's folder, as `cop train policy` writes it", required=True)
@options.profiles
@options.output("where to write the comparison, JSON")
@options.toolchain(help="folder or name of the patched tools for development and interactive mode")
@options.toolchain(
    "release",
    "--release-toolchain",
    "folder or name of the patched tools that have the policy compiled in; may be the same",
)
@options.flag(
    "--compile-time",
    type=click.Choice(["auto", "instructions", "processor-time"]),
    default="auto",
    help="what to measure of compilations: instructions are counted by the processor or else by "
    "QEMU, which takes 15 to 30 times as long; auto counts if either can, else takes times",
)
@options.flag(
    "--repetitions",
    type=click.IntRange(1),
    help="measured pairs of compilations a module; by default 3 if the processor counts, 1 if QEMU "
    "does, 7 for times",
)
@options.seed("of the order of measured compilations, and of intervals")
def policy(
    problem: str,
    corpus: Path,
    model: Path,
    profile: Sequence[str],
    output: Path,
    toolchain: Path,
    release_toolchain: Path,
    compile_time: str,
    repetitions: int | None,
    seed: int,
) -> Table:
    """Compare a policy with the compiler's default on modules: size, score, compile time."""
    from compiler_opt_perf.compare.comparison import compare
    from compiler_opt_perf.compare.modes import Modes, require_compiled_in
    from compiler_opt_perf.compare.summary import to_json
    from compiler_opt_perf.compare.tables import describe
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.corpus.profiles import Profiles
    from compiler_opt_perf.policy.export import load
    from compiler_opt_perf.toolchain.installation import Toolchain

    model = required_model_folder(model)
    loaded, decided = None, PROBLEMS[problem]
    # A candidate from elsewhere has no description; one of ours must be whole and of this problem.
    if (model / "model.json").exists():
        loaded = load(model)
        decided = loaded.network.problem
        if decided.name != problem:
            raise UsageError(f"--model={model}: a policy for {decided.name}, not {problem}")
    modules = Corpus.load(corpus)
    release = Toolchain.load(release_toolchain)
    require_compiled_in(release, decided, model)
    development = Toolchain.load(toolchain)
    modes = Modes(
        decided,
        release_clang=release.clang,
        development_clang=development.clang,
        litert_library=development.litert_library,
        model=model,
        policy=loaded,
        profiles=Profiles.parse(profile),
    )
    comparison = compare(
        modes, modules, compile_time=compile_time, repetitions=repetitions, seed=seed
    )
    written = to_json(comparison)
    write_json(output, written)
    return Table(
        lambda: f"{describe(comparison)}Written: {output}\n",
        lambda: {"written": str(output), "comparison": written},
    )


@compare.command(
    "programs",
    example="compare programs ninja lua --model=models/inline-size --output=build/linked.json",
    json_version=1,
)
@click.argument("names", nargs=-1, required=True, metavar="PROGRAM...")
@options.path_flag("--model", "the policy's folder, for example models/inline-size", required=True)
@options.output("where to write the comparison, JSON; `cop compare page` reads it")
@options.flag(
    "--modules",
    type=options.PATH,
    default=BUILD / "programs",
    help="folder for the programs' modules, extracted where they are not there yet",
)
@options.toolchain()
@options.workers
def programs(
    names: Sequence[str], model: Path, output: Path, modules: Path, toolchain: Path, workers: int
) -> Table:
    """Compare the linked text of real programs with a policy and without."""
    from compiler_opt_perf.compare.linked import compare_linked, describe, to_json
    from compiler_opt_perf.corpus.programs import find_program, program_modules
    from compiler_opt_perf.policy.export import load
    from compiler_opt_perf.toolchain.installation import Toolchain

    names = list(dict.fromkeys(names))
    for name in names:
        find_program(name)
    model = required_model_folder(model).resolve()
    folder = modules.resolve()
    problem = load(model).network.problem
    tools = Toolchain.load(toolchain)
    extracted = {
        name: program_modules(
            name,
            folder / "programs",
            folder / "corpora",
            opt_level=problem.optimization_level,
            stage=problem.corpus_stage,
        )
        for name in names
    }
    linked = compare_linked(model, extracted, tools, workers or None)
    written = to_json(linked)
    write_json(output, written)
    return Table(
        lambda: f"{describe(linked)}Written: {output}\n",
        lambda: {"written": str(output), "comparison": written},
    )


@compare.command(
    "page",
    example="compare page build/demo/inline-size.json --training=inline-size=build/demo/inline-size"
    " --output=build/demo/report.html",
)
@options.path_argument(
    "comparisons", "COMPARISON.json...", "as `cop compare policy` and `programs` write them"
)
@options.output("the page to write, HTML")
@options.flag(
    "--training",
    multiple=True,
    help="PROBLEM=FOLDER of a training run whose curve to show",
)
def page(comparisons: Sequence[Path], output: Path, training: Sequence[str]) -> None:
    """Write one HTML page with tables and plots from comparisons and training curves."""
    from compiler_opt_perf.compare.files import read_comparison, read_curve
    from compiler_opt_perf.compare.linked import is_linked, read_linked
    from compiler_opt_perf.pages.comparison import write_page

    curves = {}
    for word in training:
        name, equals, folder = word.partition("=")
        if not equals or name not in PROBLEMS:
            raise UsageError(f"--training={word}: expected PROBLEM=FOLDER")
        curves[name] = read_curve(Path(folder) / "curve.jsonl")
    linked = [path for path in comparisons if is_linked(path)]
    modules = [read_comparison(path) for path in comparisons if path not in linked]
    write_page(modules, curves, output, [read_linked(path) for path in linked])
    print(output)
