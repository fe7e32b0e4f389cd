# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy import export
from compiler_opt_perf.policy.encoding import fit_normalisation
from compiler_opt_perf.policy.export import Policy
from compiler_opt_perf.policy.interactive import InteractiveHost, policy_decisions
from compiler_opt_perf.policy.network import IntArray, Network
from compiler_opt_perf.policy.problem import PROBLEMS, Problem, for_clang
from compiler_opt_perf.run.command import CommandError
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.compilation import (
    Compiler,
    Default,
    Job,
    keep_default,
    measure_candidate,
    measure_default,
)
from compiler_opt_perf.train.log import read_log

pytestmark = pytest.mark.compiler

WITH_PMU = pytest.mark.parametrize("with_pmu", [False, True], ids=["upstream", "pmu"])


@pytest.fixture(params=list(PROBLEMS))
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS[request.param]


def make_compiler(toolchain: Toolchain, problem: Problem, profile: Path | None = None) -> Compiler:
    return Compiler(
        toolchain.clang, toolchain.litert_library, problem, Profiles(profile), 60.0, 4096
    )


def default_of(job: Job) -> Default:
    """Compiles with the compiler's own policy, and keeps the log."""
    run = measure_default(job)
    keep_default(job, run)
    return run.default


@WITH_PMU
def test_log_has_the_tensors_of_the_tables(
    toolchain: Toolchain,
    corpora: dict[str, Corpus],
    profile: Path,
    problem: Problem,
    tmp_path: Path,
    with_pmu: bool,
) -> None:
    log_path = tmp_path / "module.log"
    module = corpora[problem.name].modules[0]
    compiler = make_compiler(toolchain, problem, profile if with_pmu else None)
    default = default_of(Job(compiler, module, log=log_path))
    log = read_log(log_path)
    # The default's decision is a feature, too, where it is logged apart.
    names = (*(f.name for f in problem.all_features(with_pmu)), problem.decision)
    assert log.record.names == names
    assert problem.default_decision is None or problem.default_decision in names
    inputs = log.inputs(problem, with_pmu)
    if with_pmu:
        assert all(inputs[feature.name].min() >= -1 for feature in problem.pmu_features)
        assert inputs["pmu_coverage"].max() > 0
    assert default.decisions == len(log.decisions(problem)) > 0
    assert default.seconds > 0
    assert default.costs.total > 0
    if problem.mask is not None:
        chosen = np.take_along_axis(inputs[problem.mask], log.decisions(problem)[:, None], axis=1)
        assert (chosen == 1).all()


def test_one_input_tells_what_the_default_decides(
    toolchain: Toolchain, corpora: dict[str, Corpus], problem: Problem, tmp_path: Path
) -> None:
    # Without this input, rules for the default's decisions are of little worth
    # (docs/reference/features.md).
    rule = {"inline-size": "inlining_default", "regalloc-evict": "default_decision"}[problem.name]
    told, decided = [], []
    for number, module in enumerate(corpora[problem.name].modules):
        path = tmp_path / f"{number}.log"
        default_of(Job(make_compiler(toolchain, problem), module, log=path))
        log = read_log(path)
        values = log.inputs(problem, with_pmu=False)[rule]
        told.append(values if problem.mask is None else values.argmax(axis=1))
        decided.append(log.decisions(problem))
    decisions = np.concatenate(decided)
    assert len(decisions) >= 40
    assert len(np.unique(decisions)) > 1
    assert (np.concatenate(told) == decisions).mean() > 0.99


@WITH_PMU
def test_compiler_decides_as_numpy_does(
    toolchain: Toolchain,
    corpora: dict[str, Corpus],
    profile: Path,
    problem: Problem,
    tmp_path: Path,
    with_pmu: bool,
) -> None:
    compiler = make_compiler(toolchain, problem, profile if with_pmu else None)
    module = corpora[problem.name].modules[0]
    default_log = tmp_path / "default.log"
    default_of(Job(compiler, module, log=default_log))
    inputs = read_log(default_log).inputs(problem, with_pmu)
    normalisation = fit_normalisation(inputs, problem, with_pmu)
    network = Network(problem, with_pmu, (8,), normalisation)
    weights = network.initial_weights(seed=4)
    model = tmp_path / "model"
    export.publish(Policy(network, weights, {}), model)
    log_path = tmp_path / "candidate.log"
    options = problem.development_options(
        model=model, log=log_path, profile=compiler.profiles.common
    )
    compiler.compile(module, tmp_path / "module.o", options)
    log = read_log(log_path)
    assert len(log.starts) > 0
    np.testing.assert_array_equal(
        network.decide(weights, log.inputs(problem, with_pmu)), log.decisions(problem)
    )
    costs = measure_candidate(Job(compiler, module, model))
    assert costs.total > 0


def test_damaged_model_is_the_compilers_error(
    toolchain: Toolchain, corpora: dict[str, Corpus], problem: Problem, tmp_path: Path
) -> None:
    network_spec = [
        {
            "logging_name": problem.decision,
            "tensor_spec": {
                "name": "StatefulPartitionedCall",
                "port": 0,
                "type": "int64_t",
                "shape": [1],
            },
        }
    ]
    (tmp_path / "output_spec.json").write_text(str(network_spec).replace("'", '"'))
    (tmp_path / "model.tflite").write_bytes(b"not a model")
    module = corpora[problem.name].modules[0]
    with pytest.raises(CommandError, match=r"model\.tflite"):
        measure_candidate(Job(make_compiler(toolchain, problem), module, tmp_path))


def test_without_a_profile_pmu_features_are_what_the_compiler_has_for_none(
    toolchain: Toolchain,
    corpora: dict[str, Corpus],
    profile: Path,
    problem: Problem,
    tmp_path: Path,
) -> None:
    """A policy that reads them decides in a module of a program that was not profiled."""
    module = corpora[problem.name].modules[0]
    default_log = tmp_path / "default.log"
    default_of(Job(make_compiler(toolchain, problem, profile), module, log=default_log))
    inputs = read_log(default_log).inputs(problem, with_pmu=True)
    network = Network(problem, True, (8,), fit_normalisation(inputs, problem, True))
    model, log_path = tmp_path / "model", tmp_path / "candidate.log"
    export.publish(Policy(network, network.initial_weights(seed=4), {}), model)
    options = problem.development_options(model=model, log=log_path)
    compiler = make_compiler(toolchain, problem)
    compiler.compile(module, tmp_path / "module.o", options)
    log = read_log(log_path)
    found, expected = log.inputs(problem, True), log.inputs(problem, True, profiled=False)
    scored = {feature.name for feature in problem.pmu_features if feature.scored}
    assert len(log.starts) and scored <= expected.keys()
    for name in scored:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name], name)
    # What Python decides by, asked in interactive mode, is the same.
    policy = _Asked(network, network.initial_weights(seed=4), {})
    with InteractiveHost(problem, policy_decisions(policy)) as host:
        words = for_clang(problem.interactive_options(host.channel))
        host.run(module.compile_command(toolchain.clang, tmp_path / "interactive.o", words))
    asked = {name: np.concatenate([one[name] for one in policy.asked]) for name in policy.asked[0]}
    assert {feature.name for feature in network.features} <= asked.keys()
    for feature in network.features:
        np.testing.assert_array_equal(asked[feature.name], found[feature.name], feature.name)
    assert (tmp_path / "interactive.o").read_bytes() == (tmp_path / "module.o").read_bytes()


class _Asked(Policy):
    """A policy that notes what it is asked.

    Attributes:
      asked: the inputs of each decision.
    """

    @functools.cached_property
    def asked(self) -> list[Mapping[str, npt.NDArray[Any]]]:
        return []

    def decide(self, inputs: Mapping[str, npt.NDArray[Any]]) -> IntArray:
        self.asked.append(inputs)
        return super().decide(inputs)
