# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a policy on labels of single decisions, with dataset aggregation.

Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to No-Regret
Online Learning", AISTATS 2011: labels around the compiler's own decisions tell nothing of the
states that a policy comes to which decides otherwise. So each round labels decisions around those
of the policy before, and fits a policy to all labels so far. The best policy of all rounds on the
validation programs is published.

Everything lies in one output folder, so that an interrupted training goes on where it was:

  inputs.json      the inputs of the training, which owns the folder from then on
  default/         what the compiler's own policy leads to, a file a program
  labels/ROUND/    labels, a file a module
  rounds/          the result of each round, and its candidates
  events...        the figures of the rounds, for TensorBoard
  training.json    settings and results
  policy/          the published policy (see policies.export)
  lock             held while a process works in the folder

The same recipe, modules and compiler give the same policy, byte by byte, interrupted or not.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.export import Policy
from compiler_opt_perf.policy.network import Kind, Network
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.curve import write_scalars
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.files import sha256, write_json, write_text
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train import cost_sensitive
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.evaluation import raise_unless_of_one_compilation
from compiler_opt_perf.train.folder import TrainingFolder
from compiler_opt_perf.train.imitation_result import (
    CompiledProgram,
    ImitationResult,
    Round,
    link_programs,
    read_round,
)
from compiler_opt_perf.train.label_files import Labels, labelled_rows, logged_rows, read_labels
from compiler_opt_perf.train.labels import (
    LabelFile,
    LabelJob,
    LinkJob,
    keep_labels,
    label_file,
    module_sizes,
)
from compiler_opt_perf.train.recipe import Recipe
from compiler_opt_perf.train.result import versions

PROBLEM = PROBLEMS["inline-size"]


def words(kind: Kind) -> str:
    """What is decided otherwise."""
    verb = "not to inline" if kind.inlining_default else "to inline"
    where = "functions in COMDATs" if kind.callee_is_comdat else "static and external functions"
    return f"{verb} {where} of {'C++' if kind.callee_is_mangled else 'C'}"


def _without_labels(path: Path) -> Path:
    """The note that a module has no labels, in the place of their file."""
    return path.with_suffix(".failed")


def imitate(
    recipe: Recipe,
    programs: Mapping[str, Sequence[Module]],
    toolchain: Toolchain,
    output: Path,
    *,
    executor: Callable[[], Executor] = Pool,
) -> ImitationResult:
    """Trains a policy, or goes on with the training in `output`.

    Args:
      programs: the modules of each program that the recipe names.
      executor: makes the workers that compile.

    Raises:
      TrainingError: it cannot start, and `output` is as before; or `output` holds a training of
        something else; or the compiler fails with each candidate.
      LabelsError: a damaged file of labels.
      FileWriteError: the disk is full.
    """
    compiler = Compiler.of(toolchain, PROBLEM)
    inputs: dict[str, Any] = {
        "kind": "labels",
        "compiler": sha256(compiler.clang),
        # As it is read back: with lists, no tuples.
        "recipe": msgspec.json.decode(msgspec.json.encode(recipe)),
        "corpus": {
            module.name: module.fingerprint() for modules in programs.values() for module in modules
        },
        "versions": versions("lightgbm"),
    }
    with TrainingFolder.held(output) as folder, executor() as pool:
        folder.require_inputs(inputs)
        logging.info(
            "training on labels in %s, seed %d; changes are against the default policy's, "
            "negative is better",
            *(folder.path, recipe.seed),
        )
        run = _Run(recipe, programs, compiler, folder, pool)
        run.measure_defaults(inputs)
        folder.claim(inputs)
        rounds: list[Round] = []
        for number in range(recipe.labels.rounds):
            rounds.append(run.round(number))
            run.write_scalars(rounds)
        return run.publish(toolchain.ld_lld, rounds)


class _Run:
    """A training with its inputs and its folder."""

    def __init__(
        self,
        recipe: Recipe,
        programs: Mapping[str, Sequence[Module]],
        compiler: Compiler,
        folder: TrainingFolder,
        pool: Executor,
    ):
        self._recipe = recipe
        self._modules = {name: {one.name: one for one in own} for name, own in programs.items()}
        self._compiler = compiler
        self._folder = folder
        self._pool = pool
        self._programs: dict[str, CompiledProgram] = {}
        self._labels: list[Labels] = []

    def measure_defaults(self, inputs: Mapping[str, Any]) -> None:
        """Compiles every module with the compiler's own policy.

        Args:
          inputs: of the training.

        Raises:
          TrainingError: a program has no module with a decision.
        """
        for name in self._recipe.programs.all:
            modules = {one: inputs["corpus"][one] for one in self._modules[name]}
            own = {"compiler": inputs["compiler"], "modules": modules}
            path = self._folder.default / f"{name}.json"
            self._programs[name] = memo(path, own, CompiledProgram, partial(self._measure, name))

    def _measure(self, name: str) -> CompiledProgram:
        modules = self._modules[name]
        jobs = [LabelJob(self._compiler, module) for module in modules.values()]
        sizes, left_out = {}, {}
        outcomes = self._pool.map(module_sizes, jobs, label=f"{name}: default")
        for module, outcome in zip(modules, outcomes, strict=True):
            if outcome.error is None:
                sizes[module] = outcome.get()
            else:
                raise_unless_of_one_compilation(outcome.error)
                left_out[module] = str(outcome.error)
                logging.warning("%s is left out: %s", module, outcome.error)
        if not sizes:
            (reason, *_) = left_out.values()
            raise TrainingError(f"{name}: no module compiles; the first: {reason}")
        if not any(one.decisions for one in sizes.values()):
            raise TrainingError(f"{name}: no module has anything to decide; leave it out")
        if not any(sum(one.sizes.values()) for one in sizes.values() if one.decisions):
            raise TrainingError(
                f"{name}: no module with anything to decide compiles to code; leave it out"
            )
        return CompiledProgram(sizes, left_out)

    def round(self, number: int) -> Round:
        """Labels, fits and compares candidates; what the folder holds is not done again."""
        model = None if number == 0 else self._student(number - 1)
        self._labels += self._label(number, model)
        path = self._round_file(number)
        if path.exists():
            return read_round(path)
        rows = sum(len(one.keys) for one in self._labels)
        network, weights = self._fit(number)
        candidates: dict[str, dict[str, float] | None] = {}
        for lead in self._recipe.network.leads:
            description = {"seed": self._recipe.seed, "round": number, "labels": rows}
            led = dataclasses.replace(network, default_lead=lead)
            policy = Policy(led, weights, description)
            directory = self._candidate(number, str(lead))
            export.publish(policy, directory)
            candidates[str(lead)] = self._validate(directory, f"round {number}, lead {lead:g}")
        result = Round(rows, candidates)
        if not result.compiled:
            raise TrainingError(
                f"{self._folder.path}: the compiler fails with each candidate of round {number}; "
                "the warnings above name the modules"
            )
        logging.info(
            "round %d: %d labels, lead %s: %+.2f%% on the validation programs",
            *(number, rows, result.best[0], 100 * result.best[1]),
        )
        write_json(path, msgspec.to_builtins(result))
        return result

    def write_scalars(self, rounds: Sequence[Round]) -> None:
        """Writes the figures of rounds for TensorBoard, unless the next one is done already."""
        if not self._round_file(len(rounds)).exists():
            rows = [(number, 0.0, one.values) for number, one in enumerate(rounds)]
            write_scalars(self._folder.path, rows)

    def _round_file(self, number: int) -> Path:
        return self._folder.path / "rounds" / f"{number}.json"

    def _candidate(self, number: int, lead: str) -> Path:
        return self._folder.path / "rounds" / f"{number}-{lead}"

    def _student(self, number: int) -> Path:
        """The best candidate of a round."""
        return self._candidate(number, read_round(self._round_file(number)).best[0])

    def _label(self, number: int, model: Path | None) -> list[Labels]:
        """The labels of all training modules around the decisions of `model`."""
        files = []
        for name in self._recipe.programs.training:
            program = self._programs[name]
            copies = program.copies
            for module, sizes in program.modules.items():
                if sizes.decisions == 0:
                    continue
                job = LabelJob(
                    self._compiler,
                    self._modules[name][module],
                    model,
                    # Those of the default's functions: a function that a flip adds counts whole.
                    copies=sizes.own(copies),
                    most=self._recipe.labels.sites,
                    seed=derive_seed(self._recipe.seed, "labels", number, module),
                )
                path = self._folder.path / "labels" / str(number) / f"{module}.npz"
                files.append(LabelFile(job, path))
        missing = [
            file
            for file in files
            if not file.path.exists() and not _without_labels(file.path).exists()
        ]
        outcomes = self._pool.map(
            label_file, missing, label=f"round {number}: labels", keep=keep_labels
        )
        for file, outcome in zip(missing, outcomes, strict=True):
            if outcome.error is not None:
                raise_unless_of_one_compilation(outcome.error)
                logging.warning("%s: no labels: %s", file.job.module.name, outcome.error)
                # Tried again, it could have labels that what was learnt since does not know.
                write_text(_without_labels(file.path), f"{outcome.error}\n")
        return [read_labels(file.path) for file in files if file.path.exists()]

    def _fit(self, number: int) -> tuple[Network, npt.NDArray[np.float32]]:
        """Trees fitted to all labels so far, and a network distilled from them."""
        seed = self._recipe.seed
        inputs, gain, groups = labelled_rows(PROBLEM, self._labels)
        if not gain.any():
            raise TrainingError(
                f"{self._folder.path}: no label tells a difference; raise labels.sites or name "
                "more programs to train on"
            )
        trees = cost_sensitive.Trees.fit(
            PROBLEM,
            *(inputs, gain, groups),
            self._recipe.trees,
            derive_seed(seed, "trees", number),
        )
        logging.info(
            "round %d: learnt %s",
            number,
            ", ".join(
                f"{words(cost_sensitive.KINDS[one])} ({100 * share:.0f}%)"
                for one, share in trees.kept.items()
            )
            or "nothing",
        )
        if not trees.kept:
            logging.warning(
                "round %d: in no kind of decisions do trees save %.0f%% of what there is to save "
                "in programs, or modules, that they have not seen: the policy decides as the "
                "default does. %d labels may be too few; raise labels.sites, or name more programs",
                *(number, 100 * self._recipe.trees.least_share, len(gain)),
            )
        return cost_sensitive.student(
            trees,
            PROBLEM,
            logged_rows(PROBLEM, self._labels),
            self._recipe.network,
            derive_seed(seed, "network", number),
        )

    def _validate(self, model: Path, label: str) -> dict[str, float] | None:
        """The change of each validation program; None if the compiler fails on a module."""
        changes = {}
        for name in self._recipe.programs.validation:
            program = self._programs[name]
            copies = program.copies
            modules = [one for one, own in program.modules.items() if own.decisions]
            jobs = [LabelJob(self._compiler, self._modules[name][one], model) for one in modules]
            outcomes = self._pool.map(module_sizes, jobs, label=f"{label}: {name}")
            before = after = 0.0
            for module, outcome in zip(modules, outcomes, strict=True):
                if outcome.error is not None:
                    raise_unless_of_one_compilation(outcome.error)
                    logging.warning("%s: %s fails: %s", label, module, outcome.error)
                    return None
                before += program.modules[module].weighted(copies)
                after += outcome.get().weighted(copies)
            changes[name] = after / before - 1.0
        return changes

    def publish(self, linker: Path, rounds: Sequence[Round]) -> ImitationResult:
        """Measures the best candidate of all rounds on the test programs, and publishes it."""
        choices = [(one.best[1], i, one.best[0]) for i, one in enumerate(rounds)]
        validation_change, number, lead = min(choices)
        chosen = self._candidate(number, lead)
        jobs = {}
        for name in self._recipe.programs.test:
            modules = tuple(self._modules[name][one] for one in self._programs[name].modules)
            pair = [LinkJob(self._compiler, modules, model, linker) for model in (None, chosen)]
            jobs[name] = (pair[0], pair[1])
        programs, failed = link_programs(jobs, self._pool)
        result = ImitationResult(
            self._folder.policy,
            number,
            float(lead),
            rounds[number].labels,
            validation_change,
            programs,
            failed,
        )
        record = {
            "seed": self._recipe.seed,
            "results": {
                "reward": "linked text bytes",
                "verdict": result.verdict,
                "test_change": result.change,
                "test_failed": failed,
                "programs": {
                    one.name: {"linked": one.linked, "objects": one.objects, "change": one.change}
                    for one in programs
                },
                "validation_change": validation_change,
                "round": number,
                "lead": float(lead),
                "labels": result.labels,
            },
            "training": {
                "recipe": msgspec.to_builtins(self._recipe),
                "rounds": [msgspec.to_builtins(one) for one in rounds],
                "versions": versions("lightgbm"),
            },
        }
        source = export.load(chosen)
        export.publish(Policy(source.network, source.weights, record), self._folder.policy)
        write_json(self._folder.result, {"problem": PROBLEM.name, **record})
        return result
