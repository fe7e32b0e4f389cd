# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains one policy: default compilations, warm start, evolution strategies; the best is kept.

Everything lies in one output folder, so that an interrupted training goes on where it was:

  default/         training log and cost of the compiler's own policy, a pair a module
  checkpoint.npz   state after the last finished generation
  curve.jsonl      a line a generation, for plots
  training.json    settings, inputs and results
  failures/        models that made the compiler fail, for reproduction
  policy/          the published policy (see policies.export)

The same seed, inputs and versions give the same policy: nothing depends on timing but a time
budget, which only ends a training before the number of generations asked for.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging
from ml_collections import ConfigDict

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.cost.evaluator import Context
from compiler_opt_perf.execution.files import sha256, write_json, write_text
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.execution.seeds import derive_seed
from compiler_opt_perf.policies import export
from compiler_opt_perf.policies.export import CandidateTemplate, ModelError, Policy
from compiler_opt_perf.policies.network import (
    IntArray,
    Network,
    Normalisation,
    fit_normalisation,
    to_grid,
)
from compiler_opt_perf.policies.problem import Problem
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.toolchain.layout import exclusive
from compiler_opt_perf.training import behavioural_cloning, evolution_strategies
from compiler_opt_perf.training.checkpoint import Checkpoint
from compiler_opt_perf.training.compilation import Compiler
from compiler_opt_perf.training.evaluation import Evaluator, MeasuredModule, measure_defaults
from compiler_opt_perf.training.evolution_strategies import State
from compiler_opt_perf.training.log import read_log

# Settings by which a continued training may differ from the one it continues.
_FREE_SETTINGS = ("generations", "budget_s", "workers")


class TrainingError(Exception):
    """A training that cannot start, or cannot go on in its folder."""


@dataclass(frozen=True)
class TrainingResult:
    """What came out.

    Attributes:
      policy: directory of the published policy.
      reward: name of what was made smaller.
      gain: share of the default's cost that it saves on the validation modules.
      warm_start_gain: the same of the warm start.
      generations: done in all.
    """

    policy: Path
    reward: str
    gain: float
    warm_start_gain: float
    generations: int


def default_config(problem: Problem) -> ConfigDict:
    """The settings and their defaults; the types are checked when they are changed."""
    config = ConfigDict()
    # Of every random choice.
    config.seed = 1
    # Generations in all, and a limit in seconds (0: none) on the whole training.
    config.generations = 50
    config.budget_s = 0.0
    # Processes; 0: one a core.
    config.workers = 0
    # Limits of one compilation.
    config.timeout_s = 60.0
    config.memory_mib = 4096
    # Widths of the hidden layers.
    config.hidden = (16, 8)
    # Share of the modules that candidates are chosen on but not made from.
    config.validation_share = 0.25
    # On modules with more decisions no candidate is compiled: one would take most of a small
    # budget. The warm start learns from them.
    config.max_decisions = 1000
    # Imitations to begin with; the one that costs least is taken. See behavioural_cloning.Settings.
    config.warm_starts = 3
    config.warm_start_steps = 1000
    config.warm_start_batch = 512
    config.warm_start_learning_rate = 0.02
    config.label_smoothing = 0.1
    # Rows of the default policy's logs that the warm start learns from.
    config.warm_start_rows = 50_000
    # Evolution strategies: see evolution_strategies.Settings.
    config.pairs = 8
    config.sigma = 0.06
    config.learning_rate = 0.015
    config.modules_per_generation = 8
    # A misspelt setting is an error, not a new one.
    config.lock()
    return config


def train(
    problem: Problem,
    corpus: Corpus,
    toolchain: Toolchain,
    profile: Path | None,
    output: Path,
    config: ConfigDict,
    evaluator: str | None = None,
    context: Context | None = None,
) -> TrainingResult:
    """Trains a policy, or goes on with the training in `output`.

    Args:
      problem: a row of policies.problem.PROBLEMS, possibly with extra rates.
      corpus: modules to train on; held-out modules are not among them.
      toolchain: the patched compiler.
      profile: PMU profile manifest; with one the policy reads the PMU features.
      output: folder of this training.
      config: from `default_config`.
      evaluator: one that replays a trace, whose cost is made smaller instead of the problem's own
        reward (`training.rewards.evaluator_reward`); the corpus is of the traced program.
      context: the recorded run.

    Raises:
      TrainingError: too few usable modules, or `output` holds a training of something else.
      CheckpointError: damaged checkpoint.
      FileWriteError: the disk is full.
    """
    with exclusive(output / "lock"), Pool(config.workers or None) as pool:
        compiler = Compiler(
            clang=toolchain.clang,
            litert_library=toolchain.litert_library,
            problem=problem,
            profile=profile,
            timeout_s=config.timeout_s,
            memory_mib=config.memory_mib,
            evaluator=evaluator,
            context=context or Context(),
        )
        return _Training(compiler, corpus, output, config, pool).run()


class _Training:
    """One run of `train`."""

    def __init__(
        self,
        compiler: Compiler,
        corpus: Corpus,
        output: Path,
        config: ConfigDict,
        pool: Pool,
    ):
        self._start = time.monotonic()
        self._elapsed_before = 0.0
        self._problem = compiler.problem
        self._corpus = corpus
        self._with_pmu = compiler.profile is not None
        self._output = output
        self._config = config
        self._pool = pool
        self._compiler = compiler
        self._settings = evolution_strategies.Settings(
            pairs=config.pairs,
            sigma=config.sigma,
            learning_rate=config.learning_rate,
            tasks_per_generation=config.modules_per_generation,
            seed=config.seed,
        )

    def run(self) -> TrainingResult:
        logging.info(
            "%s: training in %s, seed %d", self._problem.name, self._output, self._config.seed
        )
        self._claim_folder()
        measured = self._measure_defaults()
        usable = self._usable(measured)
        training, validation = self._split(usable)
        self._module_counts = {"training": len(training), "validation": len(validation)}
        checkpoint_path = self._output / "checkpoint.npz"
        if checkpoint_path.exists():
            checkpoint = Checkpoint.load(checkpoint_path)
            self._elapsed_before = checkpoint.record["curve"][-1]["elapsed_s"]
            if self._is_published(checkpoint):
                logging.info("already done: %s", self._output / "policy")
                return self._result(checkpoint)
            logging.info("going on after generation %d", checkpoint.state.generation)
            network = self._network(checkpoint.normalisation)
            evaluator = self._evaluator(network)
        else:
            # The largest modules are too slow to compile hundreds of times, not to learn from.
            large = [m for m in measured if m.default.decisions > self._config.max_decisions]
            network, warm_starts = self._warm_starts([*training, *large])
            evaluator = self._evaluator(network)
            checkpoint = self._choose_warm_start(network, warm_starts, evaluator, validation)
        checkpoint = self._evolve(checkpoint, evaluator, training, validation)
        return self._publish(network, checkpoint)

    def _claim_folder(self) -> None:
        """Notes what this training is of; refuses a folder that holds another one."""
        config = {k: v for k, v in self._config.items() if k not in _FREE_SETTINGS}
        profile = self._compiler.profile
        inputs = {
            "problem": self._problem.name,
            "compiler": sha256(self._compiler.clang),
            "profile": sha256(profile) if profile is not None else None,
            "extra_rates": list(self._problem.extra_rates),
            "evaluator": self._compiler.evaluator_inputs,
            "corpus": {m.name: sha256(m.bitcode) for m in self._corpus.modules},
            "config": json.loads(json.dumps(config)),
        }
        path = self._output / "inputs.json"
        if path.exists():
            try:
                before = dict(json.loads(path.read_text(encoding="utf-8")))
            except (ValueError, TypeError) as error:
                raise TrainingError(
                    f"{path}: damaged ({error}); remove the folder {self._output} to start again"
                ) from error
            different = [key for key in inputs if inputs[key] != before.get(key)]
            if different:
                raise TrainingError(
                    f"{self._output}: holds a training with another {' and '.join(different)}; "
                    "choose another folder, or remove this one"
                )
        write_json(path, inputs)

    def _measure_defaults(self) -> list[MeasuredModule]:
        folder = self._output / "default"
        return measure_defaults(self._compiler, self._corpus.modules, folder, self._pool)

    def _usable(self, measured: Sequence[MeasuredModule]) -> list[MeasuredModule]:
        """The modules that candidates are compiled on."""
        limit = self._config.max_decisions
        usable = [m for m in measured if 0 < m.default.decisions <= limit]
        logging.info(
            "%d of %d modules are usable: the others do not compile, have nothing to decide or "
            "more than %d decisions",
            len(usable),
            len(self._corpus.modules),
            limit,
        )
        if len(usable) < 2:
            raise TrainingError(
                f"{self._corpus.directory}: only {len(usable)} usable modules, training needs at "
                "least 2 (one to choose policies on); extract more, or raise max_decisions"
            )
        return usable

    def _split(
        self, measured: Sequence[MeasuredModule]
    ) -> tuple[list[MeasuredModule], list[MeasuredModule]]:
        """Training and validation modules, at least one of each."""
        random = np.random.default_rng(derive_seed(self._config.seed, "validation"))
        order = random.permutation(len(measured))
        count = round(len(measured) * self._config.validation_share)
        count = min(max(count, 1), len(measured) - 1)
        return (
            [measured[i] for i in sorted(order[count:])],
            [measured[i] for i in sorted(order[:count])],
        )

    def _network(self, normalisation: Normalisation) -> Network:
        return Network(self._problem, self._with_pmu, tuple(self._config.hidden), normalisation)

    def _evaluator(self, network: Network) -> Evaluator:
        template = CandidateTemplate.make(network)
        return Evaluator(self._compiler, template, self._pool, self._output / "failures")

    def _warm_starts(
        self, training: Sequence[MeasuredModule]
    ) -> tuple[Network, list[npt.NDArray[np.float32]]]:
        """Imitates the compiler's decisions on the training modules, from several beginnings."""
        inputs, decisions = self._default_decisions(training)
        network = self._network(fit_normalisation(inputs, self._problem, self._with_pmu))
        warm_starts = []
        for number in range(self._config.warm_starts):
            settings = behavioural_cloning.Settings(
                steps=self._config.warm_start_steps,
                batch_size=self._config.warm_start_batch,
                learning_rate=self._config.warm_start_learning_rate,
                label_smoothing=self._config.label_smoothing,
                seed=derive_seed(self._config.seed, "warm start", number),
            )
            warm_starts.append(behavioural_cloning.train(network, inputs, decisions, settings))
        logging.info(
            "%d warm starts: %d weights from %d decisions",
            len(warm_starts),
            network.size,
            len(decisions),
        )
        return network, warm_starts

    def _default_decisions(
        self, modules: Sequence[MeasuredModule]
    ) -> tuple[dict[str, npt.NDArray[Any]], IntArray]:
        """Features and decisions of the modules' logs, at most `warm_start_rows` of them."""
        logs = [read_log(measured.log) for measured in modules]
        parts = [log.inputs(self._problem, self._with_pmu) for log in logs]
        inputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        decisions = np.concatenate([log.default_decisions(self._problem) for log in logs])
        if len(decisions) > self._config.warm_start_rows:
            random = np.random.default_rng(derive_seed(self._config.seed, "rows"))
            rows = random.choice(len(decisions), self._config.warm_start_rows, replace=False)
            inputs, decisions = {n: values[rows] for n, values in inputs.items()}, decisions[rows]
        return inputs, decisions

    def _choose_warm_start(
        self,
        network: Network,
        warm_starts: Sequence[npt.NDArray[np.float32]],
        evaluator: Evaluator,
        validation: Sequence[MeasuredModule],
    ) -> Checkpoint:
        """Begins with the one that costs least: near-equal imitations can differ by per cents."""
        gains = evaluator.gains(warm_starts, validation, f"{self._problem.name}: warm starts")
        chosen = int(gains.argmax())
        gain, weights = float(gains[chosen]), warm_starts[chosen]
        if gain == -np.inf:
            raise TrainingError(
                "the warm starts fail on all validation modules; see the warnings above"
            )
        accuracy = behavioural_cloning.accuracy(
            network, weights, *self._default_decisions(validation)
        )
        logging.info(
            "warm start %d: %+.3f%% on the validation modules (others %s); equals the compiler in "
            "%.1f%% of %d decisions there (%.1f%% where it acts, %.1f%% where not)",
            chosen,
            100 * gain,
            ", ".join(f"{100 * g:+.3f}%" for i, g in enumerate(gains) if i != chosen) or "none",
            100 * accuracy.overall,
            accuracy.rows,
            100 * accuracy.active,
            100 * accuracy.idle,
        )
        record = {"warm_start_accuracy": accuracy.as_json(), "curve": []}
        point = {"generation": 0, "validation": gain, "elapsed_s": self._elapsed()}
        checkpoint = Checkpoint(
            State.start(weights), weights, weights, network.normalisation, record
        )
        return self._save(checkpoint, point, {gain: weights}, evaluator)

    def _evolve(
        self,
        checkpoint: Checkpoint,
        evaluator: Evaluator,
        training: Sequence[MeasuredModule],
        validation: Sequence[MeasuredModule],
    ) -> Checkpoint:
        """Evolution strategies up to the number of generations or the time budget."""
        config = self._config
        first = checkpoint.state.generation
        begin = time.monotonic()
        while (number := checkpoint.state.generation) < config.generations:
            done = number - first
            per_generation = (time.monotonic() - begin) / max(done, 1)
            if config.budget_s and self._elapsed() + per_generation > config.budget_s:
                logging.info(
                    "time budget of %g s used up after generation %d", config.budget_s, number
                )
                break
            label = f"{self._problem.name}: generation {number + 1} of {config.generations}"
            compilations = evaluator.compilations
            start = time.monotonic()
            evaluate = functools.partial(evaluator.gains, label=label)
            state, fitness, fittest = evolution_strategies.generation(
                checkpoint.state, self._settings, evaluate, training
            )
            if not np.isfinite(fitness).any():
                raise TrainingError(
                    f"generation {number + 1}: every candidate failed on every module; remove the "
                    "cause that the warnings above tell, and run the same command to go on"
                )
            # The step is an average over few candidates; with a small budget the fittest of them is
            # often ahead of it.
            gain, fittest_gain = evaluator.gains([state.mean, fittest], validation).tolist()
            rate = (evaluator.compilations - compilations) / (time.monotonic() - start)
            finite = fitness[np.isfinite(fitness)]
            point = {
                "generation": state.generation,
                "fitness_mean": float(finite.mean()) if finite.size else None,
                "fitness_max": float(finite.max()) if finite.size else None,
                "validation": gain if np.isfinite(gain) else None,
                "validation_fittest": fittest_gain if np.isfinite(fittest_gain) else None,
                "elapsed_s": self._elapsed(),
            }
            moved = dataclasses.replace(checkpoint, state=state)
            measured = {gain: state.mean, fittest_gain: fittest}
            checkpoint = self._save(moved, point, measured, evaluator)
            per_generation = (time.monotonic() - begin) / (done + 1)
            left = per_generation * (config.generations - state.generation)
            if config.budget_s:
                left = min(left, max(config.budget_s - self._elapsed(), 0.0))
            logging.info(
                "%s: candidates %+.3f%% (best %+.3f%%), validation %+.3f%%, fittest candidate "
                "%+.3f%% (best so far %+.3f%% at %d), "
                "%.1f compilations/s, %.0f s left",
                label,
                100 * (point["fitness_mean"] or 0.0),
                100 * (point["fitness_max"] or 0.0),
                100 * gain,
                100 * fittest_gain,
                100 * checkpoint.record["best_gain"],
                checkpoint.record["best_generation"],
                rate,
                left,
            )
        return checkpoint

    def _save(
        self,
        checkpoint: Checkpoint,
        point: Mapping[str, Any],
        measured: Mapping[float, npt.NDArray[Any]],
        evaluator: Evaluator,
    ) -> Checkpoint:
        """Stores the state with the curve's next point; `measured` has weights by their gain."""
        record = dict(checkpoint.record)
        record["curve"] = [*record["curve"], dict(point)]
        gain = max(measured)
        best = checkpoint.best
        if gain > record.get("best_gain", -np.inf):
            best = to_grid(measured[gain])
            record |= {"best_gain": gain, "best_generation": point["generation"]}
        record["compilations"] = record.get("compilations", 0) + evaluator.compilations
        record["failures"] = record.get("failures", 0) + evaluator.failures
        evaluator.compilations = evaluator.failures = 0
        saved = dataclasses.replace(checkpoint, best=best, record=record)
        saved.save(self._output / "checkpoint.npz")
        lines = [json.dumps(line) + "\n" for line in record["curve"]]
        write_text(self._output / "curve.jsonl", "".join(lines))
        return saved

    def _elapsed(self) -> float:
        """Seconds of this training, those before an interruption included."""
        return self._elapsed_before + time.monotonic() - self._start

    def _result(self, checkpoint: Checkpoint) -> TrainingResult:
        return TrainingResult(
            policy=self._output / "policy",
            reward=self._compiler.reward.name,
            gain=checkpoint.record["best_gain"],
            warm_start_gain=checkpoint.record["curve"][0]["validation"],
            generations=checkpoint.state.generation,
        )

    def _is_published(self, checkpoint: Checkpoint) -> bool:
        """Whether the training is over and its policy is in place."""
        over = checkpoint.state.generation >= self._config.generations or (
            self._config.budget_s and self._elapsed() >= self._config.budget_s
        )
        try:
            policy = export.load(self._output / "policy")
        except ModelError:
            return False
        return bool(over and np.array_equal(policy.weights, checkpoint.best))

    def _publish(self, network: Network, checkpoint: Checkpoint) -> TrainingResult:
        result = self._result(checkpoint)
        record = {k: v for k, v in checkpoint.record.items() if k != "curve"}
        description = {
            "seed": self._config.seed,
            "results": {
                "reward": result.reward,
                "gain": result.gain,
                "warm_start_gain": result.warm_start_gain,
                **record,
            },
            "training": {
                "generations": result.generations,
                "elapsed_s": round(self._elapsed(), 1),
                "modules": self._module_counts,
                "config": json.loads(json.dumps(self._config.to_dict())),
                "versions": {name: version(name) for name in ("numpy", "tensorflow-cpu")},
            },
        }
        export.publish(Policy(network, checkpoint.best, description), result.policy)
        write_json(self._output / "training.json", {"problem": self._problem.name, **description})
        logging.info(
            "%s: %d generations, %d compilations (%d failed) in %.0f s: %+.3f%% on the validation "
            "modules (warm start %+.3f%%), policy in %s",
            self._problem.name,
            result.generations,
            record["compilations"],
            record["failures"],
            self._elapsed(),
            100 * result.gain,
            100 * result.warm_start_gain,
            result.policy,
        )
        return result
