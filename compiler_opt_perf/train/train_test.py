# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Corpus, CorpusError
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy import export, tflite
from compiler_opt_perf.policy.encoding import FloatArray
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import PROBLEMS, for_clang
from compiler_opt_perf.policy.testing import random_inputs
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.train import env, measure, start
from compiler_opt_perf.train import result as result_module
from compiler_opt_perf.train.algorithms.evolution_strategies import EvolutionStrategies
from compiler_opt_perf.train.checkpoint import Checkpoint, CheckpointError
from compiler_opt_perf.train.compilation import Compiler, Default, Job, measure_default
from compiler_opt_perf.train.config import (
    Config,
    ConfigError,
    read_config,
    require_stages,
)
from compiler_opt_perf.train.env import default_decisions
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.log import read_log
from compiler_opt_perf.train.measure import CandidateMeasurer, MeasuredModule, Measurement
from compiler_opt_perf.train.result import WORSE, TrainingResult
from compiler_opt_perf.train.rewards import Costs, Reward, Way
from compiler_opt_perf.train.testing import (
    checkpoint_without_times,
    curve_without_times,
    kill_and_resume,
)
from compiler_opt_perf.train.train import train

pytestmark = pytest.mark.long(45)

COUNT = EVALUATORS["count"]
SMALL = Config((EvolutionStrategies(iterations=3, pairs=2, modules=2),), hidden=(6,), workers=2)


def run(
    problem: str,
    corpora: dict[str, Corpus],
    toolchain: Toolchain,
    output: Path,
    profile: Path | None = None,
    **changes: Any,
) -> TrainingResult:
    config = SMALL.changed(changes)
    return train(PROBLEMS[problem], corpora[problem], toolchain, Profiles(profile), output, config)


def published_bytes(training: Path) -> dict[str, str]:
    """Checksums of all that a training publishes."""
    paths = [path for path in (training / "policy").rglob("*") if path.is_file()]
    return {
        str(path.relative_to(training)): sha256(path)
        for path in (*paths, training / "training.json")
    }


@pytest.fixture(scope="module")
def inline_training(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    output = tmp_path_factory.mktemp("inline") / "training"
    run("inline-size", corpora, toolchain, output)
    return output


@pytest.mark.compiler
def test_training_leaves_a_policy_a_curve_and_a_record(
    inline_training: Path, corpora: dict[str, Corpus]
) -> None:
    policy = export.load(inline_training / "policy")
    record = json.loads((inline_training / "training.json").read_text())
    curve = [json.loads(x) for x in (inline_training / "curve.jsonl").read_text().splitlines()]
    assert [point["generation"] for point in curve] == [0, 1, 2, 3]
    results = record["results"]
    fittest = [point["validation_of_fittest"] for point in curve[1:]]
    of_mean = [point["validation_of_mean"] for point in curve]
    # Costs against the default: less is better.
    assert results["validation_change"] == min(*fittest, *of_mean)
    assert results["validation_change"] <= results["start_change"]
    # The start on 1 validation module; 3 generations of 4 candidates on 2 modules, then the mean
    # and the fittest on that module.
    assert results["compilations"] == 1 + 3 * (4 * 2 + 2)
    grid = results["grid"]
    assert grid["validation_change"] == results["validation_change"]
    assert grid["loss"] == grid["validation_change"] - grid["validation_change_as_trained"]
    assert policy.description["training"]["generations"] == 3
    assert policy.description["seed"] == 1
    # Each module has one purpose.
    names = [name for names in record["modules"].values() for name in names]
    assert sorted(names) == [module.name for module in corpora["inline-size"].modules]
    assert record["training"]["modules"] == {"training": 3, "validation": 1, "test": 1}
    assert (record["left_out"], record["large"]) == ({}, {})


@pytest.mark.compiler
def test_what_is_published_is_the_change_on_test_modules(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    record = json.loads((inline_training / "training.json").read_text())
    corpus = corpora["inline-size"].subset(record["modules"]["test"])
    sizes = []
    for module in corpus.modules:
        model = inline_training / "policy"
        options = PROBLEMS["inline-size"].development_options(model=model)
        command = module.compile_command(toolchain.clang, tmp_path / "policy.o", for_clang(options))
        run_command(command, env={"LLVM_LITERT_LIBRARY": str(toolchain.litert_library)})
        run_command(module.compile_command(toolchain.clang, tmp_path / "default.o"))
        sizes.append([text_bytes(tmp_path / f"{name}.o") for name in ("policy", "default")])
    policy, default = (sum(column) for column in zip(*sizes, strict=True))
    assert record["results"]["test_change"] == pytest.approx(policy / default - 1)
    model = json.loads((inline_training / "policy" / "model.json").read_text())
    assert model["results"] == record["results"]
    assert (record["results"]["verdict"] == WORSE) == (policy > default)


@pytest.mark.compiler
def test_a_resumed_training_equals_an_uninterrupted_one(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "training"
    run("inline-size", corpora, toolchain, output, iterations=1)
    run("inline-size", corpora, toolchain, output, iterations=3, workers=1)
    whole = Checkpoint.load(inline_training / "checkpoint.npz")
    resumed = Checkpoint.load(output / "checkpoint.npz")
    np.testing.assert_array_equal(resumed.state["weights"], whole.state["weights"])
    np.testing.assert_array_equal(resumed.best, whole.best)
    assert published_bytes(output) == published_bytes(inline_training)


@pytest.mark.compiler
def test_a_finished_training_is_not_repeated(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain
) -> None:
    before = (inline_training / "policy" / "model.json").stat().st_mtime_ns
    result = run("inline-size", corpora, toolchain, inline_training)
    assert result.generations == 3
    assert (inline_training / "policy" / "model.json").stat().st_mtime_ns == before


@pytest.mark.compiler
def test_what_is_missing_of_a_finished_training_is_published_again(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "training"
    shutil.copytree(inline_training, output)
    (output / "training.json").unlink()
    (output / "policy" / "model.tflite").write_bytes(b"")
    (output / "curve.jsonl").write_bytes(b"")
    run("inline-size", corpora, toolchain, output)
    assert published_bytes(output) == published_bytes(inline_training)
    curves = [(folder / "curve.jsonl").read_bytes() for folder in (output, inline_training)]
    assert curves[0] == curves[1]


@pytest.mark.compiler
def test_a_budget_that_ended_a_training_stays_used_up(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "t"
    result = run("inline-size", corpora, toolchain, output, iterations=1000, budget_s=6.0)
    before = published_bytes(output), (output / "checkpoint.npz").read_bytes()
    # However fast the next run is: it has the time of a generation left.
    for _ in range(2):
        again = run("inline-size", corpora, toolchain, output, iterations=1000, budget_s=6.0)
        assert again == result
        assert (published_bytes(output), (output / "checkpoint.npz").read_bytes()) == before
    more = run("inline-size", corpora, toolchain, output, iterations=result.generations + 1)
    assert more.generations == result.generations + 1


@pytest.mark.compiler
@pytest.mark.parametrize("iterations", [0, 2])
def test_weights_that_fail_are_not_published(
    corpora: dict[str, Corpus],
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    iterations: int,
) -> None:
    """A compiler that fails on a validation module whenever a policy inlines less there."""
    output = tmp_path / "t"
    measure = CandidateMeasurer.measure
    seen: list[Measurement] = []

    def fail_where_best(self: CandidateMeasurer, *args: Any, **kwargs: Any) -> list[Measurement]:
        measured = measure(self, *args, **kwargs)
        if len(args[2]) == 1 and len(measured) == 2:
            # After a generation: what would be the best of all fails on a module.
            name = args[2][0].module.name
            measured = [dataclasses.replace(one, change=-0.9, failed=(name,)) for one in measured]
        seen.extend(measured)
        return measured

    monkeypatch.setattr(CandidateMeasurer, "measure", fail_where_best)
    result = run("inline-size", corpora, toolchain, output, iterations=iterations)
    checkpoint = Checkpoint.load(output / "checkpoint.npz")
    assert result.validation_change == result.start_change == 0.0
    policy = export.load(result.policy)
    np.testing.assert_array_equal(policy.weights, checkpoint.best)
    # An untrained network, whose last layer says nothing against the compiler.
    matrix, bias = policy.network.layers(policy.weights)[-1]
    assert not matrix.any() and not bias.any()


@pytest.mark.compiler
def test_a_start_that_fails_ends_the_training(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    failing = tmp_path / "clang"
    failing.write_text(
        f'#!/bin/bash\ncase "$*" in *model-under-training*) exit 1;; esac\n'
        f'exec {toolchain.clang} "$@"\n'
    )
    failing.chmod(0o755)
    toolchain = dataclasses.replace(toolchain, clang=failing)
    with pytest.raises(
        TrainingError, match="fails on validation modules .* with the policy to begin with"
    ):
        run("inline-size", corpora, toolchain, tmp_path / "t")
    assert not (tmp_path / "t" / "policy").exists()


@pytest.mark.compiler
def test_large_modules_are_sampled_and_those_left_out_are_named(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    corpus = corpora["inline-size"]
    bad = tmp_path / "bad.bc"
    bad.write_bytes(corpus.modules[0].bitcode.read_bytes()[:1000])
    modules = (dataclasses.replace(corpus.modules[0], bitcode=bad), *corpus.modules[1:])
    corpus = dataclasses.replace(corpus, modules=modules)
    output = tmp_path / "t"
    run("inline-size", {"inline-size": corpus}, toolchain, output, iterations=1, max_decisions=1)
    record = json.loads((output / "training.json").read_text())
    assert record["left_out"] == {modules[0].name: "cannot be measured: clang fails"}
    used = {name for names in record["modules"].values() for name in names}
    assert used == set(record["large"]) == {module.name for module in modules[1:]}
    assert all(0 < share < 1 for share in record["large"].values())
    # 2 modules to train on, of which one takes part; the others are compiled all the same.
    assert record["training"]["modules"] == {"training": 2, "validation": 1, "test": 1}
    assert record["results"]["compilations"] in (1 + 4 + 2, 1 + 2 * 4 + 2)


@pytest.mark.compiler
def test_eviction_trains_on_scores_and_pmu_data_and_stops_in_time(
    corpora: dict[str, Corpus], profile: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "t"
    result = run(
        "regalloc-evict", corpora, toolchain, output, profile, iterations=1000, budget_s=0.01
    )
    assert result.generations == 0
    assert result.validation_change == result.start_change
    result = run("regalloc-evict", corpora, toolchain, output, profile, iterations=1)
    assert result.generations == 1
    assert export.load(result.policy).network.with_pmu
    with pytest.raises(TrainingError, match="a training with another profile;"):
        run("regalloc-evict", corpora, toolchain, output, None, iterations=1)


@pytest.mark.compiler
def test_scores_count_as_often_as_the_profile_has_calls(
    corpora: dict[str, Corpus],
    profile: Path,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Mapping[str, float]] = []
    ratio = Reward.ratio

    def see(self: Reward, default: Costs, policy: Costs, calls: Mapping[str, float]) -> float:
        seen.append(calls)
        return ratio(self, default, policy, calls)

    monkeypatch.setattr(Reward, "ratio", see)
    run("regalloc-evict", corpora, toolchain, tmp_path / "t", profile, iterations=0)
    assert seen
    # As the profile's head counts say.
    assert all(calls["pressure1"] == 1000 for calls in seen)
    seen.clear()
    run("regalloc-evict", corpora, toolchain, tmp_path / "u", None, iterations=0)
    assert seen == [{}] * len(seen)


@pytest.mark.compiler
def test_programs_have_their_own_profiles(
    corpora: dict[str, Corpus],
    profile: Path,
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bool] = []
    ratio = Reward.ratio

    def see(self: Reward, default: Costs, policy: Costs, calls: Mapping[str, float]) -> float:
        seen.append(bool(calls))
        return ratio(self, default, policy, calls)

    monkeypatch.setattr(Reward, "ratio", see)
    problem, output = PROBLEMS["regalloc-evict"], tmp_path / "t"
    given = corpora[problem.name]
    modules = tuple(
        dataclasses.replace(module, name=f"{program}/{module.name.rpartition('/')[2]}")
        for program, part in (("one", given.modules[::2]), ("two", given.modules[1::2]))
        for module in part
    )
    corpus = Corpus(given.directory, modules)
    config = SMALL.changed({"iterations": 1})

    def train_with(**programs: Path) -> TrainingResult:
        return train(problem, corpus, toolchain, Profiles(None, programs), output, config)

    with pytest.raises(CorpusError, match="has no modules of three; its programs are one, two"):
        train_with(three=profile)
    assert not output.exists()
    result = train_with(one=profile)
    assert result.generations == 1 and export.load(result.policy).network.with_pmu
    for module in modules:
        names = read_log(output / "default" / f"{module.name}.log").record.names
        assert ("pmu_coverage" in (names or ())) == (module.program == "one")
    # Calls weigh the scores of the functions of the one, and not those of the other.
    assert set(seen) == {True, False}
    # The same again changes nothing; with a profile for the other, too, it is another training.
    assert train_with(one=profile) == result
    with pytest.raises(TrainingError, match="a training with another profile;"):
        train_with(one=profile, two=profile)


@pytest.mark.compiler
def test_any_rate_of_the_profile_is_a_feature(
    corpora: dict[str, Corpus], profile: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    # The compiler's tables have this rate under another name; as an extra one it comes again.
    problem = PROBLEMS["inline-size"].with_rates(["llc-miss-probability"])
    config = SMALL.changed({"iterations": 1})
    corpus = corpora[problem.name]
    result = train(problem, corpus, toolchain, Profiles(profile), tmp_path / "t", config)
    policy = export.load(result.policy)
    assert policy.network.problem == problem
    assert [feature.name for feature in policy.network.features][-2:] == [
        "pmu_callsite_llc_miss_probability",
        "pmu_callee_llc_miss_probability",
    ]
    log = read_log(next((tmp_path / "t" / "default").rglob("*.log")))
    # 50 misses of 500 loads on every line: 100,000 of a million.
    assert 100_000 in log.inputs(problem, with_pmu=True)["pmu_callee_llc_miss_probability"]
    with pytest.raises(TrainingError, match="a training with another extra_rates;"):
        train(PROBLEMS[problem.name], corpus, toolchain, Profiles(profile), tmp_path / "t", config)


@pytest.mark.compiler
def test_eviction_trains_on_the_instructions_of_a_run(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    corpus = corpora["regalloc-evict"]
    main = tmp_path / "main.c"
    names = [f"pressure{module.name[-1]}" for module in corpus.modules]
    declarations = "".join(f"long {name}(const long *, long);" for name in names)
    calls = " ^ ".join(f"{name}(p, 200)" for name in names)
    main.write_text(
        f"{declarations} static long p[400]; volatile long sink;\n"
        f"int main(void) {{ sink = {calls}; return 0; }}\n"
    )
    objects = [tmp_path / f"{number}.o" for number in range(len(names))]
    for module, target in zip(corpus.modules, objects, strict=True):
        run_command(module.compile_command(toolchain.clang, target, REPLAY_FLAGS))
    binary = tmp_path / "program"
    run_command(
        [stock_tool("clang"), "-fuse-ld=lld", "-Wl,--build-id", main, *objects, "-o", binary]
    )
    record(binary, [], tmp_path / "run.bbtrace")
    context = Context(toolchain.trace_cost, tmp_path / "run.bbtrace", threads=1)

    config = SMALL.changed({"iterations": 1})
    problem = PROBLEMS["regalloc-evict"]
    output = tmp_path / "t"
    result = train(problem, corpus, toolchain, Profiles(), output, config, COUNT, context)
    assert result.reward == "count instructions"
    costs = json.loads(next((output / "default").rglob("*.json")).read_text())["result"]["costs"][
        "parts"
    ]
    # Each of the 200 turns multiplies, loads and adds for each value at least.
    (counted,) = (value for name, value in costs.items() if name.startswith("pressure"))
    assert 200 * 22 * 2 < counted < 200 * 22 * 10
    with pytest.raises(TrainingError, match="a training with another evaluator;"):
        train(problem, corpus, toolchain, Profiles(), output, config)

    # Modules of several programs are compared by the runs of their own.
    program = corpus.modules[0].program
    compiler = Compiler(
        *(toolchain.clang, toolchain.litert_library, problem, Profiles(), 60.0, 4096, COUNT),
        Context(toolchain.trace_cost, threads=1),
        {program: tmp_path / "run.bbtrace", "other": tmp_path / "missing.bbtrace"},
    )
    assert measure_default(Job(compiler, corpus.modules[0])).default.costs.total > 200 * 22 * 2
    other = dataclasses.replace(corpus.modules[0], name="other/module")
    with pytest.raises(CommandError, match="missing.bbtrace"):
        measure_default(Job(compiler, other))


@pytest.mark.compiler
def test_a_training_begins_with_a_published_policy(
    corpora: dict[str, Corpus],
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[Network] = []
    write = tflite.write_model

    def note(folder: Path, network: Network, weights: FloatArray) -> None:
        measured.append(network)
        write(folder, network, weights)

    monkeypatch.setattr(measure, "write_model", note)
    monkeypatch.setattr(env, "write_model", note)
    model = Path(__file__).parents[2] / "models" / "inline-size"
    corpus, problem = corpora["inline-size"], PROBLEMS["inline-size"]
    config = read_config("evolution-strategies").changed({"iterations": 0})

    def run(warm_start: Path | None) -> TrainingResult:
        return train(
            problem, corpus, toolchain, Profiles(), tmp_path / "t", config, warm_start=warm_start
        )

    result = run(model)
    before, after = export.load(model), export.load(result.policy)
    np.testing.assert_array_equal(before.weights, after.weights)
    assert after.network.layer_widths == before.network.layer_widths
    # What was measured is what is published, and what the training would go on with.
    assert before.network.asked is not None
    rows = random_inputs(problem, 2000)
    for network in measured:
        np.testing.assert_array_equal(network.decide(before.weights, rows), after.decide(rows))
    assert measured
    inputs = json.loads((tmp_path / "t" / "inputs.json").read_text())
    assert inputs["warm_start"] == start.digest(before)
    with pytest.raises(TrainingError, match="a training with another config and warm_start"):
        run(None)


@pytest.mark.compiler
def test_a_warm_started_training_goes_on_exactly_where_it_was(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    problem, model = PROBLEMS["inline-size"], Path(__file__).parents[2] / "models" / "inline-size"

    def run(name: str, iterations: int) -> Checkpoint:
        config = SMALL.changed({"hidden": None, "iterations": iterations})
        train(
            *(problem, corpora[problem.name], toolchain, Profiles(), tmp_path / name, config),
            warm_start=model,
        )
        return Checkpoint.load(tmp_path / name / "checkpoint.npz")

    whole = run("whole", 2)
    run("parts", 1)
    parts = run("parts", 2)
    for name, array in whole.state.items():
        np.testing.assert_array_equal(array, parts.state[name], name)
    assert published_bytes(tmp_path / "whole") == published_bytes(tmp_path / "parts")


@pytest.mark.parametrize(
    ("problem", "recipe", "profiled", "way", "message"),
    [
        ("regalloc-evict", "labels", False, None, "stage 1, labels: labels of single decisions"),
        ("regalloc-evict", "labels-polished", True, None, "stage 1, labels: labels of single"),
        ("regalloc-evict", "ppo", False, "replay", "stage 1, ppo: learns from what functions cost"),
        ("inline-size", "bc-max", False, "record", "stage 1, bc-max: learns from what functions"),
    ],
)
def test_a_stage_that_cannot_train_for_a_problem_is_refused(
    problem: str, recipe: str, profiled: bool, way: Way | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        require_stages(read_config(recipe), PROBLEMS[problem], profiled, way)


def test_labels_are_learnt_with_a_profile_and_without() -> None:
    for profiled in (False, True):
        require_stages(read_config("labels"), PROBLEMS["inline-size"], profiled, "record")


@pytest.mark.compiler
def test_a_folder_of_another_training_is_refused(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "training"
    shutil.copytree(inline_training, output)
    with pytest.raises(TrainingError, match="a training with another config"):
        run("inline-size", corpora, toolchain, output, seed=2)
    with pytest.raises(TrainingError, match="another problem and corpus and config"):
        run("regalloc-evict", corpora, toolchain, output, seed=2)


@pytest.mark.compiler
def test_damaged_checkpoint_is_an_error(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "training"
    shutil.copytree(inline_training, output)
    path = output / "checkpoint.npz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz: damaged .*remove it"):
        run("inline-size", corpora, toolchain, output)


@pytest.mark.compiler
@pytest.mark.parametrize("damage", ["moments", "record", "version", "archive", "network"])
def test_damaged_checkpoints_are_told(
    inline_training: Path,
    corpora: dict[str, Corpus],
    toolchain: Toolchain,
    tmp_path: Path,
    damage: str,
) -> None:
    output = tmp_path / "training"
    shutil.copytree(inline_training, output)
    path = output / "checkpoint.npz"
    checkpoint = Checkpoint.load(path)
    if damage == "archive":
        path.write_bytes(b"no archive")
    elif damage == "version":
        with np.load(path) as arrays:
            np.savez(path, **{**arrays, "version": np.int64(1)})
    elif damage == "moments":
        with np.load(path) as arrays:
            moment = arrays["state.first_moment"][:-1]
            np.savez(path, **{**arrays, "state.first_moment": moment})
    elif damage == "record":
        dataclasses.replace(checkpoint, record={**checkpoint.record, "curve": [1, 2, 3, 4]}).save(
            path
        )
    else:
        state = {"weights": checkpoint.state["weights"][:-1]}
        curve = checkpoint.record["curve"][:1]
        record = {**checkpoint.record, "curve": curve, "iteration": 0}
        best = checkpoint.best[:-1]
        dataclasses.replace(checkpoint, state=state, best=best, record=record).save(path)
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz: (damaged|version 1).*remove"):
        run("inline-size", corpora, toolchain, output)


@pytest.mark.compiler
def test_a_changed_command_or_tensorflow_is_another_training(
    inline_training: Path,
    corpora: dict[str, Corpus],
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "training"
    shutil.copytree(inline_training, output)
    corpus = corpora["inline-size"]
    first = dataclasses.replace(
        corpus.modules[0], command=(*corpus.modules[0].command, "-fno-builtin")
    )
    changed = dataclasses.replace(corpus, modules=(first, *corpus.modules[1:]))
    with pytest.raises(TrainingError, match="a training with another corpus;"):
        run("inline-size", {"inline-size": changed}, toolchain, output)
    monkeypatch.setattr(result_module, "version", lambda _: "0.1")
    with pytest.raises(TrainingError, match="a training with another versions;"):
        run("inline-size", corpora, toolchain, output)


@pytest.mark.compiler
def test_a_refused_start_leaves_nothing_behind(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    corpus = corpora["inline-size"]
    two = {"inline-size": corpus.subset([module.name for module in corpus.modules[:2]])}
    output = tmp_path / "new" / "training"
    with pytest.raises(TrainingError, match="only 2 usable modules, a training needs at least 3"):
        run("inline-size", two, toolchain, output)
    with pytest.raises(PmuError, match="none"):
        run("inline-size", corpora, toolchain, output, tmp_path / "none.pmu.json")
    with pytest.raises(TrainingError, match="cannot compare policies for inline-size"):
        context = Context(trace=tmp_path / "t")
        train(PROBLEMS["inline-size"], corpus, toolchain, Profiles(), output, SMALL, COUNT, context)
    rates = PROBLEMS["inline-size"].with_rates([f"rate-{i}" for i in range(9)])
    with pytest.raises(TrainingError, match=r"inputs: .*; ask for fewer of --extra-rates"):
        profile = tmp_path / "p"
        train(rates, corpus, toolchain, Profiles(profile), output, SMALL)
    assert list(tmp_path.iterdir()) == []
    # The corrected command is no other training.
    run("inline-size", corpora, toolchain, output, iterations=0)


@pytest.mark.compiler
def test_a_folder_of_something_else_is_left_alone(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match=r"holds 'notes\.txt', which is not part of a training"):
        run("inline-size", corpora, toolchain, tmp_path)
    with pytest.raises(TrainingError, match="is not a folder"):
        run("inline-size", corpora, toolchain, tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.compiler
def test_a_full_disk_while_training_is_one_error_and_loses_nothing(
    inline_training: Path, corpora: dict[str, Corpus], tmp_path: Path
) -> None:
    checkpoint = Checkpoint.load(inline_training / "checkpoint.npz")
    path = tmp_path / "checkpoint.npz"
    checkpoint.save(path)
    before = path.read_bytes()
    code = f"""
import resource
from pathlib import Path
from compiler_opt_perf.run.files import FileWriteError
from compiler_opt_perf.train.checkpoint import Checkpoint

checkpoint = Checkpoint.load(Path({str(path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    checkpoint.save(Path({str(path)!r}))
except FileWriteError as error:
    print(error)
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout == f"{path}: cannot be written: File too large\n"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.compiler
def test_rows_are_drawn_from_all_logs(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain
) -> None:
    """The rows are those of all logs together, though one is read at a time."""
    measured = []
    for module in corpora["inline-size"].modules:
        log = inline_training / "default" / f"{module.name}.log"
        default = Default(Costs({}), len(read_log(log).starts), 0.0)
        measured.append(MeasuredModule(module, default, log))
    total = sum(one.default.decisions for one in measured)
    for rows in (total - 3, total, total + 1):
        problem = PROBLEMS["inline-size"]
        compiler = cast(Compiler, SimpleNamespace(problem=problem, profiles=Profiles()))
        inputs, decisions = default_decisions(compiler, measured, rows, seed=1)
        assert len(decisions) == min(rows, total)
        logs = [read_log(one.log) for one in measured]
        everything = np.concatenate([log.default_decisions(problem) for log in logs])
        if rows >= total:
            np.testing.assert_array_equal(decisions, everything)
        # The feature is the label.
        np.testing.assert_array_equal(inputs["inlining_default"], decisions)


@pytest.mark.compiler
def test_a_training_that_is_killed_ten_times_equals_an_uninterrupted_one(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output, name = tmp_path / "training", "inline-size"
    config = SMALL.changed({"workers": 1})
    arguments = (PROBLEMS[name], corpora[name], toolchain, Profiles(), output, config)
    assert kill_and_resume(train, arguments, output, kills=10, most=24, seed=1) == 10
    assert published_bytes(output) == published_bytes(inline_training)
    checkpoints = [
        checkpoint_without_times(folder / "checkpoint.npz") for folder in (output, inline_training)
    ]
    assert checkpoints[0] == checkpoints[1]
    curves = [curve_without_times(folder / "curve.jsonl") for folder in (output, inline_training)]
    assert curves[0] == curves[1]
