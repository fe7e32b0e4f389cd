# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every recipe that comes with the package trains, and goes on exactly where it was."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Corpus
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.network import Network
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train import result, start
from compiler_opt_perf.train.algorithms.cloning import Cloning
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.compilation import Compiler
from compiler_opt_perf.train.config import Config, presets, read_config
from compiler_opt_perf.train.driver import Training
from compiler_opt_perf.train.measure import measure_defaults
from compiler_opt_perf.train.train import train

pytestmark = [pytest.mark.compiler, pytest.mark.long(20)]

# By algorithm.
TINY: dict[str, dict[str, Any]] = {
    "cloning": {"tries": 1, "steps": 30, "batch_size": 64},
    "evolution-strategies": {"pairs": 1, "modules": 1},
    "cma-es": {"population": 4, "modules": 1, "sigma": 0.3},
    "ppo": {"modules": 1, "rollouts": 1, "epochs": 1, "temperature": 0.5},
    "bc-max": {"modules": 1, "explored": 1, "thresholds": [50], "steps": 10},
    "labels": {"modules": 1, "sites": 6, "steps": 20},
}


def tiny(name: str, iterations: int) -> Config:
    """A recipe with a small budget, so many iterations of its last stage."""
    config = read_config(name)
    used = {stage.algorithm for stage in config.stages}
    changes: dict[str, Any] = {
        f"{algorithm}.{setting}": value
        for algorithm, own in TINY.items()
        if algorithm in used
        for setting, value in {**own, "iterations": 1}.items()
    }
    return config.changed({**changes, "hidden": [4], "workers": 2, "iterations": iterations})


@pytest.fixture(scope="module")
def defaults(
    corpora: dict[str, Corpus], toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the compiler's own policy leads to, for trainings to begin with."""
    folder = tmp_path_factory.mktemp("defaults")
    problem = PROBLEMS["inline-size"]
    compiler = Compiler(toolchain.clang, toolchain.litert_library, problem, Profiles(), 60.0, 4096)
    with Pool(2) as pool:
        measure_defaults(compiler, corpora[problem.name].modules, folder / "default", pool)
    return folder / "default"


@pytest.mark.parametrize("name", presets())
def test_a_recipe_trains_and_resumes_exactly(
    name: str,
    corpora: dict[str, Corpus],
    toolchain: Toolchain,
    defaults: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, config = PROBLEMS["inline-size"], tiny(name, 2)
    save, interrupt_after = Training.save, [-1]

    def interrupted(self: Training, *args: Any) -> Checkpoint:
        saved = save(self, *args)
        if saved.generation in interrupt_after:
            raise KeyboardInterrupt
        return saved

    monkeypatch.setattr(Training, "save", interrupted)
    # Publication takes long, and train_test.py looks at it.
    monkeypatch.setattr(result, "publish", result.result_of)

    def run(output: Path) -> Checkpoint:
        if not output.exists():
            shutil.copytree(defaults, output / "default")
        train(problem, corpora[problem.name], toolchain, Profiles(), output, config)
        return Checkpoint.load(output / "checkpoint.npz")

    whole = run(tmp_path / "whole")
    interrupt_after[:] = [len(config.stages)]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts")
    interrupt_after.clear()
    parts = run(tmp_path / "parts")
    times = {"curve", "elapsed_s"}
    assert {k: v for k, v in whole.record.items() if k not in times} == {
        k: v for k, v in parts.record.items() if k not in times
    }
    for array in {**whole.state, **parts.state}:
        np.testing.assert_array_equal(whole.state[array], parts.state[array], array)
    curve = whole.record["curve"]
    assert [point["stage"] for point in curve[1:]] == [*range(len(config.stages)), whole.stage]
    assert whole.record["best_change"] <= whole.record["start_change"]
    if not isinstance(config.stages[0], Cloning):
        # An untrained residual is the compiler's own policy.
        assert whole.record["start_change"] == 0.0
    if config.stages[-1].algorithm != "evolution-strategies":
        # Candidates that cost the same are no gradient; all others have moved.
        seed = derive_seed(config.seed, "initial weights")
        resolved = start.resolved(config, None)
        assert resolved.hidden and resolved.margin
        network = Network(problem, False, resolved.hidden, whole.normalisation, resolved.margin)
        assert (whole.state["weights"] != network.initial_weights(seed)).any()
