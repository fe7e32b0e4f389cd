# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rollouts on real modules, for both problems."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.encoding import Normalisation, scored_features
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.tflite import write_model
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.labels import Flipper, LabelJob
from compiler_opt_perf.train.rollouts import RolloutJob, best_of, explore

pytestmark = pytest.mark.compiler


@pytest.fixture(scope="module")
def jobs(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, RolloutJob]:
    """By problem: a module, and an untrained residual network, which decides as the compiler."""
    result = {}
    for problem in PROBLEMS.values():
        size = len(scored_features(problem, False))
        normalisation = Normalisation(np.zeros(size, np.float32), np.ones(size, np.float32))
        network = Network(problem, False, (4,), normalisation, 0.25)
        weights = network.initial_weights(1)
        model = tmp_path_factory.mktemp("model")
        write_model(model, network, weights)
        compiler = Compiler(
            toolchain.clang, toolchain.litert_library, problem, Profiles(), 60.0, 4096
        )
        result[problem.name] = RolloutJob(
            compiler,
            corpora[problem.name].modules[0],
            model,
            network,
            weights,
            temperature=0.3,
            samples=2,
            thresholds=(50,),
            seed=1,
        )
    return result


@pytest.mark.parametrize("name", PROBLEMS)
def test_an_untrained_residual_compiles_to_the_objects_of_the_default(
    name: str, jobs: dict[str, RolloutJob], corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    job, objects = jobs[name], []
    compiler = job.compiler
    for module in corpora[name].modules:
        for options in ([], compiler.problem.development_options(model=job.model)):
            compiler.compile(module, tmp_path / "module.o", options)
            objects.append((tmp_path / "module.o").read_bytes())
    assert objects[::2] == objects[1::2]


@pytest.mark.parametrize("name", PROBLEMS)
def test_samples_are_given_to_the_compiler_and_rewarded(
    name: str, jobs: dict[str, RolloutJob], tmp_path: Path
) -> None:
    job = jobs[name]
    explored = explore(job)
    assert explored.compilations == 3
    rows = len(explored.decisions)
    # Of inlining all are sampled, of evictions one of each function.
    _, log = Flipper(LabelJob(job.compiler, job.module, job.model), tmp_path).compile({})
    assert rows > 2 if name == "inline-size" else rows == job.samples * len(log.contexts) > 2
    network = job.network
    scores = network.masked_scores(network.layers(job.weights), explored.inputs) / job.temperature
    expected = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    taken = expected[np.arange(rows), explored.decisions]
    np.testing.assert_allclose(explored.log_probability, taken, rtol=1e-4, atol=1e-4)
    again = explore(job)
    np.testing.assert_array_equal(again.decisions, explored.decisions)
    np.testing.assert_array_equal(again.reward, explored.reward)
    # Samples of almost no temperature are the policy's own: nothing changes.
    cold = explore(dataclasses.replace(job, temperature=1e-3, samples=1))
    assert not cold.reward.any()
    # However hot, what the compiler refuses is not drawn: it would end the compilation.
    hot = explore(dataclasses.replace(job, temperature=100.0, samples=3))
    assert hot.reward.any() and np.isfinite(hot.reward).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_best_decisions_of_all_parts_are_as_good_together(
    name: str, jobs: dict[str, RolloutJob], tmp_path: Path
) -> None:
    job = dataclasses.replace(jobs[name], temperature=100.0, samples=4, thresholds=(-50, 100))
    best = best_of(job)
    # The default, thresholds where there is an estimate, the policy and the samples.
    assert best.compilations == (8 if name == "inline-size" else 6)
    # Nothing is worse than the default; of evictions, none of those sampled is better here.
    assert best.saved > 0 if name == "inline-size" else best.saved >= 0
    flipper = Flipper(LabelJob(job.compiler, job.module), tmp_path)
    problem = job.compiler.problem
    costs = []
    for given in ({}, dict(zip(best.keys, best.decisions.tolist(), strict=True))):
        sizes, log = flipper.compile(given)
        parts = log.last_rewards() if problem.score_in_log else sizes
        costs.append(sum(parts.values()))
    assert costs[1] == pytest.approx((1 - best.saved) * costs[0])
