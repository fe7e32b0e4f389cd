# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The verbs that train policies and try them."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from compiler_opt_perf.cli.cost_model_verbs import LEARNED, model_of
from compiler_opt_perf.cli.options import (
    cpu_of,
    define_cpu,
    define_executor,
    define_path,
    define_problem,
    define_profiles,
    define_settings,
    define_toolchain,
    executor_of,
    model_folder,
    optional_path,
    settings_of,
)
from compiler_opt_perf.cli.verb import UsageError, Verb
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.symbol_names import printable, printable_lines

if TYPE_CHECKING:
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.cost.evaluator import Evaluator
    from compiler_opt_perf.policy.problem import Problem
    from compiler_opt_perf.train.config import Config


# cop train


# A policy was published, and should not be used.
EXIT_WORSE = 4


def _define_train(values: flags.FlagValues) -> None:
    from compiler_opt_perf.train.ablation import ABLATIONS
    from compiler_opt_perf.train.config import DEFAULT_PRESET, describe

    define_problem(values)
    define_path(
        values,
        "corpus",
        "training corpus; without one, the programs of the recipe are fetched and extracted",
        required=False,
    )
    define_profiles(values)
    define_path(values, "output", "folder for checkpoint, training curve and the policy")
    define_toolchain(values, "toolchain", "dev")
    flags.DEFINE_list(
        "extra_rates", [], "rates of the profile that become features besides", flag_values=values
    )
    flags.DEFINE_enum(
        "evaluator",
        None,
        ["allocation-score", "count", "mca", "mca-pmu", *LEARNED],
        "cost to make smaller; the problem's own by default; those behind mca-pmu are learned and "
        "need --cost-model",
        flag_values=values,
    )
    define_path(values, "cost_model", "folder of a learned cost model", required=False)
    flags.DEFINE_multi_string(
        "trace",
        [],
        "block trace or windows for --evaluator, or PROGRAM=TRACE for each program",
        flag_values=values,
    )
    define_cpu(values, "for evaluators that count cycles")
    flags.DEFINE_enum(
        "ablate",
        None,
        ABLATIONS,
        "train without what the profile tells, to see what it is worth: pmu: the policy does not "
        "read its features; shuffled-pmu: they are those of a profile whose counts were exchanged "
        "between places",
        flag_values=values,
    )
    define_executor(values)
    flags.DEFINE_string(
        "recipe",
        DEFAULT_PRESET,
        "the stages and their settings: one of the recipes that are listed at --setting, or a TOML "
        "file",
        flag_values=values,
    )
    define_path(values, "warm_start", "folder of a policy to begin with", required=False)
    flags.DEFINE_integer("seed", None, "of every random choice", flag_values=values)
    flags.DEFINE_integer("iterations", None, "of the last stage", flag_values=values)
    flags.DEFINE_float("budget", None, "stop after so many seconds", flag_values=values)
    define_settings(values, "recipe", "hidden=[8] or ppo.modules=16", describe())


def _train(values: Any, arguments: list[str]) -> int:
    from compiler_opt_perf.corpus.profiles import Profiles, by_program
    from compiler_opt_perf.cost.evaluator import Context
    from compiler_opt_perf.toolchain.installation import Toolchain
    from compiler_opt_perf.train.config import ConfigError
    from compiler_opt_perf.train.linked import table
    from compiler_opt_perf.train.train import train

    config, executor = _training_config(values), executor_of(values)
    if values.evaluator is None and (values.trace or values.cpu or values.cost_model):
        raise UsageError("--trace, --cpu and --cost-model are for --evaluator")
    trace, traces = by_program("--trace", values.trace)
    evaluator, cpu = _evaluator(values)
    profiles = Profiles.parse(values.profile)
    if values.extra_rates and not profiles.paths:
        raise UsageError("--extra-rates: name the profile that has them with --profile")
    if values.ablate and not profiles.paths:
        raise UsageError("--ablate: there is no --profile to train without")
    if values.evaluator is not None and len(profiles.paths) > 1 and not traces:
        raise UsageError(
            "--evaluator replays one program: give its profile alone, or --trace=PROGRAM=FILE for "
            "each program"
        )
    replayed = profiles.paths[0] if profiles.paths else None
    toolchain = Toolchain.load(Path(values.toolchain))
    problem = PROBLEMS[values.problem].with_rates(_extra_rates(values.extra_rates, profiles.paths))
    corpus = _corpus(values, config, problem)
    # Modules are compiled side by side already.
    context = Context(toolchain.trace_cost, trace, cpu=cpu, profile=replayed, threads=1)
    output = Path(values.output)
    profiles = dataclasses.replace(profiles, ablation=values.ablate)
    try:
        result = train(
            problem,
            corpus,
            toolchain,
            profiles,
            output,
            config,
            evaluator,
            context,
            model_folder(values, "warm_start"),
            executor,
            traces,
        )
    except ConfigError as error:
        raise UsageError(f"--recipe={values.recipe}: {error}") from None
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


def _corpus(values: Any, config: "Config", problem: "Problem") -> "Corpus":
    """The corpus that is named, or the modules of the recipe's programs."""
    from compiler_opt_perf.corpus.corpus import Corpus
    from compiler_opt_perf.train.folder import program_corpus

    if values.corpus:
        return Corpus.load(Path(values.corpus))
    if config.programs is None:
        raise UsageError("--corpus: name one, or a recipe with [programs]")
    return program_corpus(config.programs.all, problem, Path(values.output).resolve())


def _evaluator(values: Any) -> tuple["Evaluator | None", Path | None]:
    """What measures costs, and its CPU file."""
    from compiler_opt_perf.cost.evaluator import EVALUATORS

    if values.evaluator not in LEARNED:
        if values.cost_model:
            raise UsageError(f"--cost-model is for --evaluator={'|'.join(LEARNED)}")
        return EVALUATORS.get(values.evaluator), cpu_of(values)
    from compiler_opt_perf.cost.learned_replay import LearnedReplay

    return LearnedReplay(*model_of(values, "cost_model")), None


def _training_config(values: Any) -> "Config":
    from compiler_opt_perf.train.config import ConfigError, read_config

    changes = settings_of(
        values, seed=values.seed, iterations=values.iterations, budget_s=values.budget
    )
    try:
        return read_config(values.recipe).changed(changes)
    except ConfigError as error:
        raise UsageError(str(error)) from None


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


# cop interact


def _define_interact(values: flags.FlagValues) -> None:
    define_problem(values)
    define_path(values, "model", "folder of a policy, evaluated in Python", required=False)
    define_path(
        values,
        "decide",
        "Python file with a function decide(observation) that returns the decision",
        required=False,
    )
    define_path(values, "profile", "PMU profile manifest", required=False)
    define_toolchain(values, "toolchain", "dev")
    flags.DEFINE_float(
        "timeout",
        None,
        "limit of the compilation with its decisions, seconds",
        flag_values=values,
    )


def _interact(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.policy.export import load
    from compiler_opt_perf.policy.interactive import (
        InteractiveHost,
        Observation,
        load_decisions,
        policy_decisions,
    )
    from compiler_opt_perf.policy.problem import for_clang
    from compiler_opt_perf.toolchain.installation import Toolchain

    if not arguments:
        raise UsageError("expected arguments of clang after --, for example -- -Oz -c file.c")
    problem = PROBLEMS[values.problem]
    model, file = model_folder(values, "model"), optional_path(values, "decide")
    if model is not None and file is None:
        policy = load(model)
        if policy.network.problem.name != problem.name:
            raise UsageError(
                f"--model={model}: a policy for {policy.network.problem.name}, not {problem.name}"
            )
        problem = policy.network.problem
        choose = policy_decisions(policy)
    elif file is not None and model is None:
        choose = load_decisions(file)
    else:
        raise UsageError("expected one of --model=FOLDER and --decide=FILE.py")

    def decide(observation: Observation) -> int:
        decision = choose(observation)
        where = f" in {printable(observation.function)}" if observation.function else ""
        print(f"{observation.number}{where}: {problem.decision}={decision}")
        return decision

    clang = Toolchain.load(Path(values.toolchain)).clang
    with InteractiveHost(problem, decide) as host:
        options = problem.interactive_options(
            host.channel, profile=optional_path(values, "profile")
        )
        done = host.run([clang, *arguments, *for_clang(options)], timeout_s=values.timeout)
    print(printable_lines(done.stderr), end="", file=sys.stderr)


# cop policy publish-rule


def _define_publish_rule(values: flags.FlagValues) -> None:
    define_problem(values)
    help = "folder for the policy; of an earlier one, what was measured of the same rule is kept"
    define_path(values, "output", help)


def _publish_rule(values: Any, arguments: list[str]) -> None:
    from compiler_opt_perf.policy.shipped_rules import publish_rule

    publish_rule(values.problem, Path(values.output))
    print(values.output)


VERBS: tuple[Verb, ...] = (
    Verb(
        "train",
        "Train a policy, from the compiler's own decisions or a published one, as a recipe says.",
        "train --problem=inline-size --corpus=build/demo/corpus/inline-size/train"
        " --profile=build/demo/zstd.pmu.json --output=build/demo/inline-size",
        _define_train,
        _train,
        statuses={EXIT_WORSE: "the published policy is worse than the default on test modules"},
    ),
    Verb(
        "interact",
        "Compile with a policy, or with a decision function of your own, that runs in Python.",
        "interact --problem=inline-size --model=build/demo/inline-size/policy"
        " -- -Oz -c file.c -o file.o",
        _define_interact,
        _interact,
        arguments="-- CLANG-ARGUMENT...",
    ),
    Verb(
        "policy publish-rule",
        "Publish the rule behind models/inline-speed or models/regalloc-evict as a policy.",
        "policy publish-rule --problem=regalloc-evict --output=models/regalloc-evict",
        _define_publish_rule,
        _publish_rule,
    ),
)
