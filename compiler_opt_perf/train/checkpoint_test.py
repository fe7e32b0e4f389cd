# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt_perf.policy.network import DecisionKind
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_network
from compiler_opt_perf.train.checkpoint import Checkpoint, CheckpointError

RECORD: dict[str, Any] = {
    "curve": [
        {"generation": 0, "elapsed_s": 1, "stage": 0, "compilations": 3},
        {"generation": 1, "elapsed_s": 2, "stage": 1, "compilations": 9},
    ],
    "modules": {"train": ["p/a"], "validation": ["p/b"], "test": ["p/c"]},
    "stage": 1,
    "iteration": 1,
    "best_generation": 0,
    "best_change": -0.02,
    "start_change": 0.01,
    "compilations": 10,
    "failures": 0,
    "margin": 0.25,
    "asked": None,
}


def _checkpoint(record: dict[str, Any]) -> Checkpoint:
    network = random_network(PROBLEMS["inline-size"], (4,))
    weights = network.initial_weights(1)
    state = {"weights": weights.astype(np.float64), "rows.a.count": np.arange(3)}
    return Checkpoint(state, weights, network.normalisation, record)


def test_a_saved_checkpoint_is_loaded_with_all_of_its_record(tmp_path: Path) -> None:
    ended = {"budget_s": 0.0, "test_change": -1, "test_failed": ["p/c"], "grid_loss": {"loss": 0.1}}
    ended["compilations"] = 10
    nothing_yet = {"best_change": None, "start_change": None}
    for more in ({}, {"ended": ended}, {"ended": None}, nothing_yet):
        saved = _checkpoint(RECORD | more)
        saved.save(tmp_path / "checkpoint.npz")
        loaded = Checkpoint.load(tmp_path / "checkpoint.npz")
        assert loaded.record == RECORD | more
        assert loaded.state.keys() == saved.state.keys()
        for name in saved.state:
            np.testing.assert_array_equal(loaded.state[name], saved.state[name])
        assert (loaded.stage, loaded.iteration, loaded.generation) == (1, 1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"best_change": "1"}, '$.best_change: expected `float | null`, found "1"'),
        ({"best_change": ...}, "$.best_change: is missing"),
        ({"compilations": 1.5}, "$.compilations: expected `int`, found 1.5"),
        ({"margin": "0.5"}, '$.margin: expected `float`, found "0.5"'),
        ({"asked": [{"inlining_default": 2}]}, "$.asked[0].inlining_default: invalid"),
        ({"failures": -1}, "$.failures: expected `int` >= 0, found -1"),
        ({"modules": []}, "$.modules: expected `object`, found []"),
        ({"curve": []}, "$.curve: expected generations from 0 on, found []"),
        ({"curve": [1]}, "$.curve[0]: expected `object`, found 1"),
        (
            {"curve": [RECORD["curve"][1]]},
            "$.curve: expected generations from 0 on, found [1]",
        ),
        ({"curve": [{"generation": 0}]}, "$.curve[0].elapsed_s: is missing"),
        ({"iteration": 2}, "$.iteration: expected 1, as the curve has of stage 1, found 2"),
        ({"stage": 10**15}, "$.iteration: expected 0, as the curve has of stage 10"),
        ({"ended": {"budget_s": 1.0, "compilations": 1, "test_change": 0.0}}, "$.ended.test_fail"),
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


@pytest.mark.parametrize("name", ["state.weights", "best", "center", "inverse_scale"])
def test_vectors_of_other_sizes_or_types_are_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "checkpoint.npz"
    _checkpoint(RECORD).save(path)
    with np.load(path) as found:
        arrays = dict(found)
    for damaged in (arrays[name][:-1], arrays[name].astype(np.int8), arrays[name] * np.nan):
        np.savez(path, **{**arrays, name: damaged})
        with pytest.raises(CheckpointError, match=r"checkpoint\.npz: damaged \(.*; remove it"):
            Checkpoint.load(path)


def test_a_missing_or_strange_array_of_the_state_is_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    _checkpoint(RECORD).save(path)
    with np.load(path) as found:
        arrays = dict(found)
    name = "state.rows.a.count"
    for damaged in (np.array(["a"]), np.array([np.inf])):
        np.savez(path, **{**arrays, name: damaged})
        with pytest.raises(CheckpointError, match=r"damaged \(rows\.a\.count has values"):
            Checkpoint.load(path)
    del arrays[name]
    np.savez(path, **arrays)
    with pytest.raises(CheckpointError, match=r"damaged \(.*rows\.a\.count.*; remove it"):
        Checkpoint.load(path)


def test_the_network_of_the_best_policy_is_kept(tmp_path: Path) -> None:
    """Labels choose another margin and mask than the training began with."""
    problem = PROBLEMS["inline-size"]
    network = random_network(problem, (4,))
    kinds = (DecisionKind(0, 1, 1), DecisionKind(1, 0, 1))
    chosen = dataclasses.replace(network, default_lead=1.5, asked=kinds)
    checkpoint = _checkpoint(RECORD).with_best(chosen, network.initial_weights(2), best_change=-0.1)
    checkpoint.save(tmp_path / "checkpoint.npz")
    loaded = Checkpoint.load(tmp_path / "checkpoint.npz")
    found = loaded.network(problem, False, (4,))
    assert (found.default_lead, found.asked) == (1.5, kinds)
    assert loaded.record["best_change"] == -0.1
    np.testing.assert_array_equal(loaded.best, network.initial_weights(2))
