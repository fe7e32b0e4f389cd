# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.policies.testing import random_network
from compiler_opt_perf.training.checkpoint import Checkpoint, CheckpointError
from compiler_opt_perf.training.evolution_strategies import State

RECORD: dict[str, Any] = {
    "curve": [{"generation": 0, "elapsed_s": 1, "validation_of_mean": 0.01}],
    "modules": {"train": ["p/a"], "validation": ["p/b"], "test": ["p/c"]},
    "best_generation": 0,
    "best_change": -0.02,
    "warm_start_change": 0.01,
    "warm_start_accuracy": {"all": 0.9},
    "compilations": 10,
    "failures": 0,
}


def _checkpoint(record: dict[str, Any]) -> Checkpoint:
    network = random_network(PROBLEMS["inline-size"], (4,))
    weights = network.initial_weights(1)
    state = State.start(np.asarray(weights, np.float64))
    return Checkpoint(state, weights, weights, network.normalisation, record)


def test_a_saved_checkpoint_is_loaded_with_all_of_its_record(tmp_path: Path) -> None:
    ended = {"budget_s": 0.0, "test_change": -1, "test_failed": ["p/c"]}
    for record in (RECORD, RECORD | {"ended": ended}, RECORD | {"ended": None}):
        saved = _checkpoint(record)
        saved.save(tmp_path / "checkpoint.npz")
        loaded = Checkpoint.load(tmp_path / "checkpoint.npz")
        assert loaded.record == record
        np.testing.assert_array_equal(loaded.state.mean, saved.state.mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"best_change": "1"}, '$.best_change: expected `float`, found "1"'),
        ({"best_change": ...}, "$.best_change: is missing"),
        ({"compilations": 1.5}, "$.compilations: expected `int`, found 1.5"),
        ({"failures": -1}, "$.failures: expected `int` >= 0, found -1"),
        ({"modules": []}, "$.modules: expected `object`, found []"),
        ({"warm_start_accuracy": None}, "$.warm_start_accuracy: expected `object`, found null"),
        ({"curve": []}, "$.curve: expected generations 0 to 0, found []"),
        ({"curve": [1]}, "$.curve[0]: expected `object`, found 1"),
        (
            {"curve": [{"generation": 1, "elapsed_s": 1.0}]},
            "$.curve: expected generations 0 to 0, found [1]",
        ),
        ({"curve": [{"generation": 0}]}, "$.curve[0].elapsed_s: is missing"),
        ({"ended": {"budget_s": 1.0, "test_change": 0.0}}, "$.ended.test_failed: is missing"),
        (
            {"ended": {"budget_s": 1.0, "test_change": 0.0, "test_failed": [1]}},
            "$.ended.test_failed[0]: expected `str`, found 1",
        ),
    ],
)
def test_what_a_training_would_stumble_over_later_is_named(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    record = {name: value for name, value in (RECORD | change).items() if value is not ...}
    path = tmp_path / "checkpoint.npz"
    _checkpoint(record).save(path)
    with pytest.raises(
        CheckpointError, match=re.escape(f"{path}: damaged (record: {message}") + ".*; remove it"
    ):
        Checkpoint.load(path)


@pytest.mark.parametrize("name", ["mean", "first_moment", "second_moment", "best", "warm_start"])
def test_vectors_of_other_sizes_or_types_are_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "checkpoint.npz"
    _checkpoint(RECORD).save(path)
    with np.load(path) as found:
        arrays = dict(found)
    for damaged in (arrays[name][:-1], arrays[name].astype(np.int8), arrays[name] * np.nan):
        np.savez(path, **{**arrays, name: damaged})
        with pytest.raises(CheckpointError, match=r"checkpoint\.npz: damaged \(.*; remove it"):
            Checkpoint.load(path)


def test_a_damaged_number_of_steps_is_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    _checkpoint(RECORD).save(path)
    with np.load(path) as arrays:
        damaged = {**arrays, "steps": np.array(10**15)}
    np.savez(path, **damaged)
    with pytest.raises(CheckpointError, match=r"expected generations 0 to 10{15}, found \[0\]"):
        Checkpoint.load(path)
