# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains one policy: default compilations, the stages of a configuration, test, publication.

Everything lies in one output folder, so that an interrupted training goes on where it was:

  inputs.json      the inputs of the training, which owns the folder from then on
  ablated/         shuffled profiles, if the policy reads such ones
  default/         training log and cost of the compiler's own policy, a pair a module
  labels/N/        labels of iteration N, a file a module, if a stage learns labels
  checkpoint.npz   state after the last finished iteration
  curve.jsonl      a line for each iteration, for plots
  events...        the same for TensorBoard
  training.json    settings, modules and results
  failures/        models that made the compiler fail, for reproduction
  policy/          the published policy (see policy.export)
  lock             held while a process works in the folder
  programs/, corpora/   the modules that `cop train` extracted, if the recipe names programs

The same seed, inputs and versions give the same policy, byte by byte, interrupted or not. Two
limits are of time and depend on the machine: a compilation near `timeout_s` may fail in one run and
not in another, and `budget_s` ends a training before the iterations asked for.

Costs are changes against the compiler's own policy everywhere: -0.01 is 1% less, and better.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from compiler_opt_perf.corpus.corpus import Corpus, Module
from compiler_opt_perf.corpus.profiles import Profiles, programs_of
from compiler_opt_perf.cost.evaluator import Context, Evaluator
from compiler_opt_perf.cost.linked import folded_functions
from compiler_opt_perf.policy.encoding import Normalisation, scored_features
from compiler_opt_perf.policy.export import Policy
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train import result, start
from compiler_opt_perf.train.ablation import ablated
from compiler_opt_perf.train.compilation import Compiler, object_path
from compiler_opt_perf.train.config import Config, require_stages
from compiler_opt_perf.train.driver import Clock, Training, search
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.folder import TrainingFolder
from compiler_opt_perf.train.labels import count_copies
from compiler_opt_perf.train.measure import MeasuredModule, measure_defaults
from compiler_opt_perf.train.program_runs import described, prepared
from compiler_opt_perf.train.result import TrainingResult
from compiler_opt_perf.train.rewards import require_comparable
from compiler_opt_perf.train.split import split_modules, usable_modules

_ONE_TRACE: Mapping[str, Path] = {}


def train(
    problem: Problem,
    corpus: Corpus,
    toolchain: Toolchain,
    profiles: Profiles,
    output: Path,
    config: Config,
    evaluator: Evaluator | None = None,
    context: Context | None = None,
    warm_start: Path | None = None,
    executor: Callable[[int | None], Executor] = Pool,
    traces: Mapping[str, Path] = _ONE_TRACE,
) -> TrainingResult:
    """Trains a policy, or goes on with the training in `output`.

    Args:
      problem: a row of policy.problem.PROBLEMS, possibly with extra rates.
      corpus: modules to train on; held-out modules are not among them.
      toolchain: the patched compiler.
      profiles: PMU profiles; with one the policy reads the PMU features, which are missing in the
        modules of programs without.
      output: folder of this training.
      config: settings.
      evaluator: one that replays a trace, whose cost is made smaller instead of the problem's own
        reward (`train.rewards`). If the configuration has runs, it judges candidates by record.
      context: the recorded run; without `traces` all modules are of the program that ran.
      warm_start: directory of a published policy to begin with, of the same problem and features.
      executor: makes the workers that compile, given how many there are at most.
      traces: the recorded runs by program, where the corpus is of several.

    Raises:
      ConfigError: a stage is not for this problem.
      TrainingError: it cannot start, and `output` is as before; or `output` holds a training of
        something else.
      CheckpointError: damaged checkpoint.
      CorpusError: a profile is of a program that the corpus has no modules of.
      PmuError: a profile cannot be read.
      FileWriteError: the disk is full.
    """
    compiler = Compiler(
        clang=toolchain.clang,
        litert_library=toolchain.litert_library,
        problem=problem,
        profiles=profiles,
        timeout_s=config.timeout_s,
        memory_mib=config.memory_mib,
        evaluator=evaluator,
        context=context or Context(),
        traces=traces,
        copies=config.copies,
        folding=config.folding,
        options=config.options,
        runs=described(config.runs),
    )
    if evaluator is not None:
        programs = programs_of(corpus)
        require_comparable(
            problem, evaluator, compiler.context, traces, programs, compiler.runs.keys()
        )
    require_stages(config, problem, profiles.are_read, compiler.reward.way)
    policy = None
    if warm_start is not None:
        policy = start.read_policy(warm_start, problem, profiles.are_read, config)
    config = start.resolved(config, policy)
    _require_network(problem, profiles.are_read, config)
    profiles.require_programs(corpus)
    calls = _calls(compiler, corpus)
    with TrainingFolder.held(output) as folder, executor(config.workers or None) as pool:
        read = ablated(profiles, folder.ablated, config.seed)
        compiler = dataclasses.replace(compiler, profiles=read)
        run = _prepare(compiler, corpus, folder, config, pool, calls, policy, toolchain.ld_lld)
        checkpoint, measurer = run.load_checkpoint(), None
        if checkpoint is None:
            checkpoint, measurer = start.begin(run)
        else:
            before = checkpoint.record["curve"][-1]["elapsed_s"]
            run = dataclasses.replace(run, clock=Clock(run.clock.start, before))
        if not run.is_over(checkpoint) or "ended" not in checkpoint.record:
            if measurer is None:
                logging.info("going on after %d iterations", checkpoint.generation)
                measurer = run.measurer(checkpoint)
            checkpoint = search(run, checkpoint, measurer)
            checkpoint = result.final_test(run, checkpoint, measurer)
        elif result.is_published(run, checkpoint):
            logging.info("already done: %s", folder.policy)
            for one in result.remarks(run, checkpoint):
                logging.info("%s: %s", problem.name, one)
            return result.result_of(run, checkpoint)
        return result.publish(run, checkpoint)


def _require_network(problem: Problem, with_pmu: bool, config: Config) -> None:
    """Refuses features or layers that no network has room for. Raises TrainingError."""
    features = len(scored_features(problem, with_pmu))
    normalisation = Normalisation(np.zeros(features, np.float32), np.ones(features, np.float32))
    try:
        Network(problem, with_pmu, config.hidden or (), normalisation, config.margin or 0.0)
    except ValueError as error:
        remedy = "; ask for fewer of --extra-rates" if problem.extra_rates else ""
        raise TrainingError(f"{problem.name}: {error}{remedy}") from error


def _calls(compiler: Compiler, corpus: Corpus) -> Mapping[str, Mapping[str, float]]:
    """How often the profiled run of each program called its functions, if the reward asks for it.

    Raises:
      PmuError: a profile cannot be read.
    """
    profiles = compiler.profiles
    if compiler.reward.adds_up:
        for path in profiles.paths:
            Manifest.load(path)
        return {}
    calls = {path: dict(Profile.load(path).samples.entries) for path in profiles.paths}
    return {
        program: calls[own]
        for program in programs_of(corpus)
        if (own := profiles.of(program)) is not None
    }


def _prepare(
    compiler: Compiler,
    corpus: Corpus,
    folder: TrainingFolder,
    config: Config,
    pool: Executor,
    calls: Mapping[str, Mapping[str, float]],
    policy: Policy | None,
    linker: Path,
) -> Training:
    """Measures the compiler's own policy, and claims the folder when there is enough to train on.

    Raises:
      TrainingError: too few usable modules, or the folder is of another training.
    """
    clock = Clock(time.monotonic())
    logging.info(
        "%s: training in %s, seed %d; costs are against the default policy's, negative is better",
        *(compiler.problem.name, folder.path, config.seed),
    )
    inputs = {
        **_inputs(compiler, corpus, config),
        "warm_start": policy and start.digest(policy),
    }
    folder.require_inputs(inputs)
    if compiler.runs:
        compiler = prepared(compiler, corpus, folder.default, pool)
    measured, failed = measure_defaults(compiler, corpus.modules, folder.default, pool)
    usable, idle = usable_modules(measured, adds_up=compiler.reward.adds_up)
    left_out = {**failed, **idle}
    split = split_modules(usable, left_out, config)
    large = {
        one.module.name: config.max_decisions / one.default.decisions
        for one in usable
        if one.default.decisions > config.max_decisions
    }
    logging.info(
        "%d modules: %d to train on, %d to choose by, %d to test on; %d left out",
        len(corpus.modules),
        *(len(names) for names in split.names.values()),
        len(left_out),
    )
    for name, reason in sorted(left_out.items()):
        logging.info("left out: %s %s", name, reason)
    for name in sorted(large.keys() & set(split.names["training"])):
        logging.info(
            "%s has more than max_decisions=%d: it takes part in %.1f%% of the iterations that "
            "draw it",
            *(name, config.max_decisions, 100 * large[name]),
        )
    copies, linked = _programs(measured, config, linker) if config.copies else ({}, {})
    folder.claim(inputs)
    return Training(
        *(compiler, folder, config, pool, calls, copies, linked, linker, split, left_out, large),
        clock,
        policy,
    )


def _programs(
    measured: Sequence[MeasuredModule], config: Config, linker: Path
) -> tuple[dict[str, dict[str, int]], dict[str, tuple[Module, ...]]]:
    """Counts copies, by program and function; and finds the modules of each program.

    Raises:
      TrainingError: of a program, no module that compiles has anything to decide.
      CommandError: the linker failed.
    """
    split = config.programs
    assert split is not None
    programs: dict[str, list[MeasuredModule]] = {}
    for one in measured:
        programs.setdefault(one.module.program, []).append(one)
    copies = {
        name: count_copies(one.default.costs.shared for one in own)
        for name, own in programs.items()
    }
    for name, own in programs.items() if config.folding else ():
        folded = folded_functions([object_path(one.log) for one in own], linker)
        for function, count in folded.items():
            copies[name][function] = count * copies[name].get(function, 1)
    for name in split.all:
        if not any(one.default.decisions for one in programs.get(name, ())):
            raise TrainingError(
                f"{name}: no module compiles and has anything to decide; leave it out"
            )
    return copies, {name: tuple(one.module for one in own) for name, own in programs.items()}


def _inputs(compiler: Compiler, corpus: Corpus, config: Config) -> dict[str, Any]:
    """The inputs of a training: all that its result depends on."""
    profiles = compiler.profiles
    return {
        "problem": compiler.problem.name,
        "compiler": sha256(compiler.clang),
        "profile": (
            {program: profiles.checksum_of(program) for program in programs_of(corpus)}
            if profiles.programs
            else profiles.checksum_of("")
        ),
        "ablation": profiles.ablation,
        "extra_rates": list(compiler.problem.extra_rates),
        "evaluator": compiler.evaluator_inputs,
        "corpus": {module.name: module.fingerprint() for module in corpus.modules},
        "config": config.fixed(),
        "versions": result.versions(config),
    }
