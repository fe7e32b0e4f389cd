# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rollouts: one module compiled by several policies, with what each of its decisions led to.

The compiler stays deterministic. A policy is explored by sampling from its scores here, decision by
decision, and giving the samples to the compiler by key (docs/reference/features.md). The policy
decides all else. The functions whose costs a decision can change share the credit.

Where a decision is among candidates, one that is taken otherwise gives other candidates to all that
follow in the function: one decision a function is sampled, drawn at random.

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy.encoding import FloatArray
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.compilation import Compiler, scratch
from compiler_opt_perf.train.labels import Flipper, LabelJob, reach_of
from compiler_opt_perf.train.log import TrainingLog

# The feature that thresholds compare.
_ESTIMATE = "cost_estimate"
# Added to scores, as in cost.regalloc_score: a hundredth of an instruction per call.
_LEAST_SCORE = 0.01


@dataclass(frozen=True)
class RolloutJob:
    """One module to compile.

    Attributes:
      model: directory of the policy, for the compiler.
      network, weights: the same policy, on the grid, to sample from.
      temperature: that scores are divided by.
      samples: how many times decisions are sampled.
      thresholds: policies besides: inline what is estimated to cost less.
      seed: for the samples.
    """

    compiler: Compiler
    module: Module
    model: Path
    network: Network
    weights: FloatArray
    temperature: float
    samples: int
    thresholds: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class _Compiled:
    """The result of one policy: costs by function, and the log with keys."""

    costs: Mapping[str, float]
    aliases: Mapping[str, str]
    log: TrainingLog
    taken: Mapping[str, int]


@dataclass(frozen=True)
class Explored:
    """Decisions that were sampled.

    Attributes:
      inputs: the network's inputs by feature, [rows] or [rows, columns] each, as the policy saw
        them when it decided itself.
      decisions: int64 [rows], sampled.
      log_probability: float32 [rows].
      reward: float32 [rows]: of bytes saved, s, sign(s) log2(1 + |s|); of scores, the logarithm of
        the ratio.
      compilations: that it took.
    """

    inputs: dict[str, npt.NDArray[Any]]
    decisions: npt.NDArray[np.int64]
    log_probability: npt.NDArray[np.float32]
    reward: npt.NDArray[np.float32]
    compilations: int


@dataclass(frozen=True)
class Best:
    """The decisions of the best policy in each part of a module.

    Attributes:
      keys: the keys of the decisions.
      inputs, decisions: as of `Explored`.
      saved: cost of the default's code that the best policies' lacks, as a share of it.
      compilations: that it took.
    """

    keys: tuple[str, ...]
    inputs: dict[str, npt.NDArray[Any]]
    decisions: npt.NDArray[np.int64]
    saved: float
    compilations: int


def explore(job: RolloutJob) -> Explored:
    """Compiles with the policy and with samples of it. In a pool's worker.

    Raises:
      CommandError: the compiler failed on the module.
      LogError, ObjectFileError: it left a damaged file.
    """
    with scratch() as folder:
        flipper = Flipper(_label_job(job, job.model), folder)
        greedy = _compile(flipper, job, {})
        inputs = _inputs(job, greedy.log)
        log_pi = _log_probabilities(job, inputs)
        rows, decisions, rewards = [], [], []
        problem, keys = job.compiler.problem, greedy.log.keys
        for number in range(job.samples):
            given = _sample(problem, keys, log_pi, derive_seed(job.seed, "sample", number))
            explored = _compile(flipper, job, given)
            asked = given.keys() & explored.taken.keys()
            own = [i for i, key in enumerate(keys) if key in asked]
            rows.append(np.array(own, np.int64))
            decisions.append(np.array([given[keys[i]] for i in own], np.int64))
            rewards.append(_rewards(problem, [keys[i] for i in own], greedy, explored))
        row = np.concatenate(rows)
        taken = np.concatenate(decisions)
        return Explored(
            {name: values[row] for name, values in inputs.items()},
            taken,
            log_pi[row, taken].astype(np.float32),
            np.concatenate(rewards).astype(np.float32),
            flipper.compilations,
        )


def best_of(job: RolloutJob) -> Best:
    """Compiles with the default, thresholds, the policy and samples. In a pool's worker.

    Functions between which nothing can be inlined are parts of the module that do not depend on
    one another: the best policy is chosen for each. The first of equals wins: the default before
    others.

    Raises: as `explore`.
    """
    problem = job.compiler.problem
    with scratch() as folder:
        by_default = Flipper(_label_job(job, None), folder)
        by_policy = Flipper(_label_job(job, job.model), folder)
        default = _compile(by_default, job, {})
        compiled = [default]
        seen = _inputs(job, default.log)
        for threshold in job.thresholds if _ESTIMATE in seen else ():
            inlined = (seen[_ESTIMATE] < threshold).astype(np.int64).tolist()
            given = dict(zip(default.log.keys, inlined, strict=True))
            compiled.append(_compile(by_default, job, given))
        student = _compile(by_policy, job, {})
        compiled.append(student)
        log_pi = _log_probabilities(job, _inputs(job, student.log))
        for number in range(job.samples):
            seed = derive_seed(job.seed, "sample", number)
            given = _sample(problem, student.log.keys, log_pi, seed)
            compiled.append(_compile(by_policy, job, given))
        part_of = _parts(problem, compiled)
        costs = [_costs_of_parts(one, part_of) for one in compiled]
        best = {
            part: min(range(len(compiled)), key=lambda i: costs[i].get(part, 0.0))
            for part in sorted(set(part_of.values()))
        }
        keys: list[str] = []
        inputs, decisions = [], []
        for number, one in enumerate(compiled):
            own = [
                i for i, key in enumerate(one.log.keys) if best[part_of[_function(key)]] == number
            ]
            if own:
                log = one.log.select(np.array(own, np.int64))
                keys += log.keys
                inputs.append(_inputs(job, log))
                decisions.append(log.decisions(problem))
        before = sum(costs[0].values())
        after = sum(costs[number].get(part, 0.0) for part, number in best.items())
        return Best(
            tuple(keys),
            joined(inputs),
            np.concatenate(decisions),
            (before - after) / max(before, _LEAST_SCORE),
            by_default.compilations + by_policy.compilations,
        )


def joined(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    """Rows of several, at least one, one after another, by feature."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _label_job(job: RolloutJob, model: Path | None) -> LabelJob:
    return LabelJob(job.compiler, job.module, model)


def _compile(flipper: Flipper, job: RolloutJob, given: Mapping[str, int]) -> _Compiled:
    sizes, log = flipper.compile(given)
    problem = job.compiler.problem
    costs: Mapping[str, float] = log.last_rewards() if problem.score_in_log else dict(sizes)
    taken = dict(zip(log.keys, log.decisions(problem).tolist(), strict=True))
    return _Compiled(costs, sizes.aliases, log, taken)


def _inputs(job: RolloutJob, log: TrainingLog) -> dict[str, npt.NDArray[Any]]:
    """The network's inputs; the PMU features are missing where a program has no profile."""
    problem, with_pmu = job.compiler.problem, job.network.with_pmu
    profiled = job.compiler.profiles.of(job.module.program) is not None
    inputs = log.inputs(problem, with_pmu, profiled=profiled)
    return {feature.name: inputs[feature.name] for feature in problem.inputs(with_pmu)}


def _log_probabilities(
    job: RolloutJob, inputs: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[np.float64]:
    """log pi(a|s), [rows, decisions]: softmax of the scores divided by the temperature."""
    network = job.network
    scores = network.masked_scores(network.layers(job.weights), inputs) / job.temperature
    if network.problem.mask is not None:
        # However hot: what the compiler refuses is not sampled.
        scores = np.where(inputs[network.problem.mask] > 0, scores, -np.inf)
    scores = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))


def _sample(
    problem: Problem, keys: Sequence[str], log_pi: npt.NDArray[np.float64], seed: int
) -> dict[str, int]:
    """Draws decisions by key from log_pi [keys, decisions]: all, or one in each function."""
    random = np.random.default_rng(seed)
    cumulative = np.cumsum(np.exp(log_pi), axis=1)
    draws = random.random((len(log_pi), 1)) * cumulative[:, -1:]
    # Rounding can leave the sum below the draw.
    sampled = np.minimum((draws >= cumulative).sum(axis=1), log_pi.shape[1] - 1).tolist()
    if problem.mask is None:
        return dict(zip(keys, sampled, strict=True))
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(_function(key), []).append(row)
    drawn = [own[int(random.integers(len(own)))] for own in rows.values()]
    return {keys[row]: sampled[row] for row in drawn}


def _rewards(
    problem: Problem, keys: Sequence[str], before: _Compiled, after: _Compiled
) -> npt.NDArray[np.float64]:
    """The reward of each decision, float64 [keys]: how much less its functions cost."""
    if problem.score_in_log:
        old, new = (
            np.array([one.costs.get(_function(key), 0.0) for key in keys])
            for one in (before, after)
        )
        return np.asarray(np.log2((old + _LEAST_SCORE) / (new + _LEAST_SCORE)))
    # What one of the two has inlined can reach further.
    taken = {
        key: max(before.taken.get(key, 0), after.taken.get(key, 0))
        for key in [*before.taken, *after.taken]
    }
    reach = reach_of(taken, {**before.aliases, **after.aliases})
    saved = np.array(
        [
            sum(before.costs.get(name, 0) - after.costs.get(name, 0) for name in sorted(reach[key]))
            for key in keys
        ]
    )
    return np.asarray(np.sign(saved) * np.log2(1 + np.abs(saved)))


def _function(key: str) -> str:
    """The function that the decision is in."""
    return key.split(" ")[0]


def _parts(problem: Problem, compiled: Sequence[_Compiled]) -> dict[str, str]:
    """By function, the part that it belongs to: where one can be inlined, it is the caller's."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for one in compiled:
        for key in one.taken:
            caller, callee = key.split(" ")[:2]
            # The second word of an eviction's key is a register.
            parent[root(caller if problem.mask else callee)] = root(caller)
        for alias, name in one.aliases.items():
            parent[root(alias)] = root(name)
    return {name: root(name) for name in [*parent, *(name for c in compiled for name in c.costs)]}


def _costs_of_parts(compiled: _Compiled, part_of: Mapping[str, str]) -> dict[str, float]:
    """The sums of the functions' costs, by part."""
    costs: dict[str, float] = {}
    for name in sorted(compiled.costs):
        costs[part_of[name]] = costs.get(part_of[name], 0.0) + compiled.costs[name]
    return costs
