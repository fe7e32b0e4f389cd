# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs that train policies and cost models, and show trainings."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click import UsageError

from compiler_opt_perf.cli import cost_verbs, options
from compiler_opt_perf.cli.cost_verbs import LEARNED, model_of
from compiler_opt_perf.cli.options import cpu_of, executor_of, model_folder, settings_of
from compiler_opt_perf.cli.parameters import WORDS, Argument, Flag, LateChoice
from compiler_opt_perf.cli.verb import Group, Table
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.symbol_names import printable_lines

if TYPE_CHECKING:
    from compiler_opt_perf.compare.training_run import TrainingRun
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.cost.evaluator import Evaluator
    from compiler_opt_perf.policy.problem import Problem
    from compiler_opt_perf.train.config import Config
    from compiler_opt_perf.train.differences import Differences

train = Group("train", help="Trainings of policies and of cost models.")

# A policy was published, and should not be used.
EXIT_WORSE = 4


def _ablations() -> Sequence[str]:
    from compiler_opt_perf.train.ablation import ABLATIONS

    return ABLATIONS


def _settings() -> str:
    from compiler_opt_perf.train.config import describe

    return describe()


def _model_settings() -> str:
    from compiler_opt_perf.blocks.config import describe

    return describe()


@train.verb(
    "policy",
    example="train policy --problem=inline-size --corpus=corpus/train "
    "--profile=zstd.pmu.json --output=trainings/inline-size",
    statuses={EXIT_WORSE: "the published policy is worse than the default on test modules"},
)
def policy(
    problem: options.Problem,
    output: Annotated[Path, Flag("folder for checkpoint, training curve and the policy")],
    corpus: Annotated[
        Path | None,
        Flag("training corpus; without one, the programs of the recipe are fetched and extracted"),
    ] = None,
    profile: options.Profiles = (),
    toolchain: options.Toolchain = options.DEV,
    extra_rates: Annotated[
        Sequence[str], Flag("rates of the profile that become features besides", type=WORDS)
    ] = (),
    evaluator: Annotated[
        str | None,
        Flag(
            "cost to make smaller; the problem's own by default; by replay of --trace, or with "
            "[runs] in the recipe by a recorded run of each candidate; those behind mca-pmu are "
            "learned and need --cost-model",
            type=click.Choice(["allocation-score", "count", "mca", "mca-pmu", *LEARNED]),
        ),
    ] = None,
    cost_model: Annotated[
        Path | None, Flag("learned cost model: a folder, or the name of one in models/")
    ] = None,
    trace: Annotated[
        Sequence[str],
        Flag("block trace or windows for --evaluator, or PROGRAM=TRACE for each program"),
    ] = (),
    cpu: Annotated[str | None, options.cpu("for evaluators that count cycles")] = None,
    ablate: Annotated[
        str | None,
        Flag(
            "train without what the profile tells, to see what it is worth: pmu: the policy does "
            "not read its features; shuffled-pmu: they are those of a profile whose counts were "
            "exchanged between places",
            type=LateChoice(_ablations),
        ),
    ] = None,
    executor: options.ExecutorName = "processes",
    address: options.Address = None,
    recipe: Annotated[
        str,
        Flag(
            "the stages and their settings: one of the recipes that are listed at --setting, or "
            "a TOML file"
        ),
    ] = "evolution-strategies",
    warm_start: Annotated[
        Path | None, Flag("policy to begin with: a folder, or the name of one in models/")
    ] = None,
    seed: Annotated[int | None, Flag("of every random choice")] = None,
    iterations: Annotated[int | None, Flag("of the last stage")] = None,
    budget: Annotated[float | None, Flag("stop after so many seconds")] = None,
    setting: Annotated[
        Sequence[str], options.settings("recipe", "hidden=[8] or ppo.modules=16", _settings)
    ] = (),
) -> int:
    """Train a policy, from the compiler's own decisions or a published one, as a recipe says."""
    from compiler_opt_perf.corpus.profiles import Profiles, by_program
    from compiler_opt_perf.cost.evaluator import Context
    from compiler_opt_perf.toolchain.installation import Toolchain
    from compiler_opt_perf.train.config import ConfigError, read_config
    from compiler_opt_perf.train.linked import table
    from compiler_opt_perf.train.train import train

    changes = settings_of(setting, seed=seed, iterations=iterations, budget_s=budget)
    try:
        config = read_config(recipe).changed(changes)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    workers = executor_of(executor, address)
    if evaluator is None and (trace or cpu or cost_model):
        raise UsageError("--trace, --cpu and --cost-model are for --evaluator")
    common, traces = by_program("--trace", trace)
    measure, cpu_file = _evaluator(evaluator, cost_model, cpu)
    profiles = Profiles.parse(profile)
    if extra_rates and not profiles.paths:
        raise UsageError("--extra-rates: name the profile that has them with --profile")
    if ablate and not profiles.paths:
        raise UsageError("--ablate: there is no --profile to train without")
    if evaluator is not None and len(profiles.paths) > 1 and not (traces or config.runs):
        raise UsageError(
            "--evaluator replays one program: give its profile alone, or --trace=PROGRAM=FILE for "
            "each program"
        )
    replayed = profiles.paths[0] if profiles.paths else None
    tools = Toolchain.load(toolchain)
    decided = PROBLEMS[problem].with_rates(_extra_rates(extra_rates, profiles.paths))
    modules = _corpus(corpus, config, decided, output)
    # Modules are compiled side by side already.
    context = Context(tools.trace_cost, common, cpu=cpu_file, profile=replayed, threads=1)
    profiles = dataclasses.replace(profiles, ablation=ablate)
    try:
        result = train(
            decided,
            modules,
            tools,
            profiles,
            output,
            config,
            measure,
            context,
            model_folder(warm_start, "--warm-start"),
            workers,
            traces,
        )
    except ConfigError as error:
        raise UsageError(f"--recipe={recipe}: {error}") from None
    if result.programs:
        print(printable_lines(table(result.programs)), end="")
    failed = f", fails on {', '.join(result.test_failed)}" if result.test_failed else ""
    print(
        f"{result.policy}: {result.reward} {100 * result.test_change:+.2f}% on the test modules"
        f"{failed} after {result.generations} iterations "
        f"({100 * result.validation_change:+.2f}% on the modules that it was chosen by, at the "
        f"start {100 * result.start_change:+.2f}%): {result.verdict}"
    )
    return EXIT_WORSE if result.is_worse else 0


def _corpus(folder: Path | None, config: "Config", problem: "Problem", output: Path) -> "Corpus":
    """The corpus that is named, or the modules of the recipe's programs."""
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.train.folder import program_corpus

    if folder is not None:
        return Corpus.load(folder)
    if config.programs is None:
        raise UsageError("--corpus: name one, or a recipe with [programs]")
    return program_corpus(config.programs.all, problem, output.resolve())


def _evaluator(
    evaluator: str | None, cost_model: Path | None, cpu: str | None
) -> tuple["Evaluator | None", Path | None]:
    """What measures costs, and its CPU file."""
    from compiler_opt_perf.cost.evaluator import EVALUATORS

    if evaluator not in LEARNED:
        if cost_model:
            raise UsageError(f"--cost-model is for --evaluator={'|'.join(LEARNED)}")
        return None if evaluator is None else EVALUATORS.get(evaluator), cpu_of(cpu)
    from compiler_opt_perf.cost.learned_replay import LearnedReplay

    model, name = model_of(cost_model, evaluator, cpu, "--cost-model")
    learned = LearnedReplay(model, name)
    return learned, cpu_of(name) if learned.uses_cpu else None


def _extra_rates(rates: Sequence[str], profiles: Sequence[Path]) -> Sequence[str]:
    from compiler_opt_perf.profile.manifest import Manifest

    for profile in profiles if rates else ():
        known = [rate.name for rate in Manifest.load(profile).rates]
        if len(set(rates)) < len(rates) or not set(rates) <= set(known):
            raise UsageError(
                f"--extra-rates={','.join(rates)}: expected rates of {profile}, each once; it has "
                f"{', '.join(known)}"
            )
    return rates


@train.verb(
    "cost-model",
    example="train cost-model --data=lua.blocks --recipe=granite --output=build/granite",
)
def cost_model(
    data: cost_verbs.Data,
    recipe: Annotated[str, Flag("what is trained: a preset or a TOML file")],
    output: Annotated[Path, Flag("folder for checkpoint, curve and the model")],
    warm_start: Annotated[
        Path | None,
        Flag(
            "folder of a model, of another CPU perhaps, that the training begins as: few blocks "
            "are enough then"
        ),
    ] = None,
    seed: Annotated[int | None, Flag("of every random choice")] = None,
    epochs: Annotated[int | None, Flag("passes over the blocks")] = None,
    setting: Annotated[
        Sequence[str], options.settings("recipe", "network.width=16", _model_settings)
    ] = (),
) -> None:
    """Train a model of what basic blocks take, on measured ones; goes on where it was
    interrupted."""
    from compiler_opt_perf.blocks.config import LearnedError, read_config
    from compiler_opt_perf.blocks.data import read_data
    from compiler_opt_perf.train.cost_model import train

    changes = settings_of(setting, seed=seed, epochs=epochs)
    try:
        config = read_config(recipe).changed(changes)
    except LearnedError as error:
        raise UsageError(str(error)) from None
    files = read_data(data)
    model = train(
        files,
        config,
        output,
        warm_start=model_folder(warm_start, "--warm-start"),
        label=f"training {config.name}",
    )
    result = model.description["results"]["all"]
    print(
        f"{output / 'model'}: mean error {result['mean_error']:.2%}, median "
        f"{result['median_error']:.2%} on {result['blocks']:,} blocks left out, of "
        f"{', '.join(model.cpus)}; {model.description['unknown_opcodes']:,} blocks with opcodes "
        "that no training block has"
    )


@train.verb(
    "show",
    example="train show build/train-inline --corpus=build/train-inline/corpora "
    "--html=training.html",
    json_version=1,
)
def show(
    folder: Annotated[Path, Argument("FOLDER", "of one training, as `cop train policy` writes it")],
    corpus: Annotated[
        Sequence[Path],
        Flag(
            "folder with corpora; what the policy does differently is told of their modules, of "
            "those for validation if they are among them; takes as many compilations as --sites "
            "asks for"
        ),
    ] = (),
    profile: options.Profiles = (),
    toolchain: options.Toolchain = options.DEV,
    sites: Annotated[
        int,
        Flag("decisions of a module that are taken back, drawn at random if there are more", low=0),
    ] = 24,
    seed: Annotated[int, Flag("of the draws")] = 1,
    workers: options.Workers = 0,
    top: Annotated[int, options.top("decisions")] = 20,
    html: options.Html = None,
) -> Table | None:
    """Show a training, ended or not: results, curve, labels, what its policy does differently."""
    from compiler_opt_perf.compare.training_run import read_run
    from compiler_opt_perf.compare.training_tables import describe, document

    run = read_run(folder)
    differences = None
    if corpus:
        differences = _differences(run, corpus, profile, toolchain, sites, seed, workers)
    if html is None:
        return Table(lambda: describe(run, differences, top), lambda: document(run, differences))
    # Loads matplotlib.
    from compiler_opt_perf.pages.training import write_page

    write_page(run, differences, html)
    print(html)
    return None


def _differences(
    run: "TrainingRun",
    corpus: Sequence[Path],
    profile: Sequence[str],
    toolchain: Path,
    sites: int,
    seed: int,
    workers: int,
) -> "Differences":
    from compiler_opt_perf.compare.training_run import find_modules
    from compiler_opt_perf.corpus.profiles import Profiles
    from compiler_opt_perf.policy.export import load
    from compiler_opt_perf.run.pool import Pool
    from compiler_opt_perf.toolchain.installation import Toolchain
    from compiler_opt_perf.train.compilation import Compiler
    from compiler_opt_perf.train.differences import find_differences

    if run.policy is None:
        raise UsageError(f"--corpus: {run.path} has no policy yet; leave it out to see the rest")
    modules = run.choose(find_modules(corpus))
    compiler = Compiler.of(
        Toolchain.load(toolchain), load(run.policy).network.problem, Profiles.parse(profile)
    )
    with Pool(workers or None) as pool:
        return find_differences(compiler, run.policy, modules, pool, most=sites, seed=seed)
