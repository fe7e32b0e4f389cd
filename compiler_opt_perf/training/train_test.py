# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS, Context
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.policies import export
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.traces.qemu import record
from compiler_opt_perf.training.checkpoint import Checkpoint, CheckpointError
from compiler_opt_perf.training.log import read_log
from compiler_opt_perf.training.train import (
    TrainingError,
    TrainingResult,
    default_config,
    train,
)


def small_config(problem: str, **changes: Any) -> ConfigDict:
    config = default_config(PROBLEMS[problem])
    config.update(
        hidden=(6,),
        generations=3,
        pairs=2,
        modules_per_generation=2,
        warm_start_steps=200,
        warm_start_batch=64,
        workers=2,
    )
    config.update(changes)
    return config


def run(
    problem: str,
    corpora: dict[str, Corpus],
    toolchain: Toolchain,
    output: Path,
    profile: Path | None = None,
    **changes: Any,
) -> TrainingResult:
    config = small_config(problem, **changes)
    return train(PROBLEMS[problem], corpora[problem], toolchain, profile, output, config)


@pytest.fixture(scope="module")
def inline_training(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    output = tmp_path_factory.mktemp("inline") / "training"
    run("inline-size", corpora, toolchain, output)
    return output


def test_training_leaves_a_policy_a_curve_and_a_record(
    inline_training: Path,
) -> None:
    policy = export.load(inline_training / "policy")
    record = json.loads((inline_training / "training.json").read_text())
    curve = [json.loads(x) for x in (inline_training / "curve.jsonl").read_text().splitlines()]
    assert [point["generation"] for point in curve] == [0, 1, 2, 3]
    results = record["results"]
    fittest = [point["validation_fittest"] for point in curve[1:]]
    assert results["gain"] == max(*fittest, *(point["validation"] for point in curve))
    assert results["gain"] >= results["warm_start_gain"]
    # 3 warm starts on 1 validation module; 3 generations of 4 candidates on 2 modules, then the
    # mean and the fittest on that module.
    assert results["compilations"] == 3 + 3 * (4 * 2 + 2)
    assert results["warm_start_accuracy"]["overall"] > 0.5
    assert policy.description["training"]["generations"] == 3
    assert policy.description["seed"] == 1


def test_a_resumed_training_equals_an_uninterrupted_one(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "training"
    run("inline-size", corpora, toolchain, output, generations=1)
    run("inline-size", corpora, toolchain, output, generations=3)
    whole = Checkpoint.load(inline_training / "checkpoint.npz")
    resumed = Checkpoint.load(output / "checkpoint.npz")
    np.testing.assert_array_equal(resumed.state.mean, whole.state.mean)
    np.testing.assert_array_equal(resumed.best, whole.best)
    np.testing.assert_array_equal(
        export.load(output / "policy").weights, export.load(inline_training / "policy").weights
    )


def test_a_finished_training_is_not_repeated(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain
) -> None:
    before = (inline_training / "policy" / "model.json").stat().st_mtime_ns
    result = run("inline-size", corpora, toolchain, inline_training)
    assert result.generations == 3
    assert (inline_training / "policy" / "model.json").stat().st_mtime_ns == before


def test_eviction_trains_on_scores_and_pmu_data_and_stops_in_time(
    corpora: dict[str, Corpus], profile: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "t"
    result = run(
        "regalloc-evict", corpora, toolchain, output, profile, generations=1000, budget_s=1.0
    )
    assert result.generations == 0
    assert result.gain == result.warm_start_gain
    result = run("regalloc-evict", corpora, toolchain, output, profile, generations=1)
    assert result.generations == 1
    assert export.load(result.policy).network.with_pmu
    with pytest.raises(TrainingError, match="a training with another profile;"):
        run("regalloc-evict", corpora, toolchain, output, None, generations=1)


def test_any_rate_of_the_profile_is_a_feature(
    corpora: dict[str, Corpus], profile: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    # The compiler's tables have this rate under another name; as an extra one it comes again.
    problem = PROBLEMS["inline-size"].with_rates(["llc-miss-probability"])
    config = small_config(problem.name, generations=1)
    corpus = corpora[problem.name]
    result = train(problem, corpus, toolchain, profile, tmp_path / "t", config)
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
        train(PROBLEMS[problem.name], corpus, toolchain, profile, tmp_path / "t", config)


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

    config = small_config("regalloc-evict", generations=1)
    problem = PROBLEMS["regalloc-evict"]
    output = tmp_path / "t"
    result = train(problem, corpus, toolchain, None, output, config, "count", context)
    assert result.reward == "count instructions"
    costs = json.loads(next((output / "default").rglob("*.json")).read_text())["costs"]
    # Each of the 200 turns multiplies, loads and adds for each value at least.
    (counted,) = (value for name, value in costs.items() if name.startswith("pressure"))
    assert 200 * 22 * 2 < counted < 200 * 22 * 10
    with pytest.raises(TrainingError, match="a training with another evaluator;"):
        train(problem, corpus, toolchain, None, output, config)


def test_a_folder_of_another_training_is_refused(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "training"
    shutil.copytree(inline_training, output)
    with pytest.raises(TrainingError, match="a training with another config"):
        run("inline-size", corpora, toolchain, output, seed=2)
    with pytest.raises(TrainingError, match="another problem and corpus and config"):
        run("regalloc-evict", corpora, toolchain, output, seed=2)


def test_damaged_checkpoint_is_an_error(
    inline_training: Path, corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path
) -> None:
    output = tmp_path / "training"
    shutil.copytree(inline_training, output)
    path = output / "checkpoint.npz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz: damaged .*remove it"):
        run("inline-size", corpora, toolchain, output)


def test_too_few_modules(corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path: Path) -> None:
    corpus = corpora["inline-size"]
    one = corpus.subset([corpus.modules[0].name])
    with pytest.raises(TrainingError, match="only 1 usable modules"):
        run("inline-size", {"inline-size": one}, toolchain, tmp_path / "t")


def test_settings_are_typed() -> None:
    config = default_config(PROBLEMS["inline-size"])
    with pytest.raises(TypeError):
        config.generations = "many"
    with pytest.raises(AttributeError):
        config.generation = 3
