# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import shutil
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.train import env, start
from compiler_opt_perf.train.compilation import Compiler, Default
from compiler_opt_perf.train.config import read_config
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.measure import MeasuredModule
from compiler_opt_perf.train.rewards import Costs


class _Log:
    """Stands for a training log; what is selected of it is another one."""

    def __init__(self, rows: npt.NDArray[Any]):
        self.rows = rows

    def select(self, rows: npt.NDArray[Any]) -> "_Log":
        return _Log(self.rows[rows].copy())

    def inputs(self, *_: object, **__: object) -> dict[str, npt.NDArray[Any]]:
        return {"feature": self.rows}

    def default_decisions(self, *_: object) -> npt.NDArray[Any]:
        return self.rows


def test_one_log_at_a_time_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[weakref.ref[_Log]] = []

    def read_log(path: Path) -> _Log:
        assert not any(one() for one in read), "the log before is still there"
        log = _Log(np.arange(1000) + 1000 * int(path.name))
        read.append(weakref.ref(log))
        return log

    monkeypatch.setattr(env, "read_log", read_log)
    modules = [
        MeasuredModule(Module(name, Path(name), ()), Default(Costs({}), 1000, 0.0), Path(name))
        for name in "0123"
    ]
    compiler = SimpleNamespace(problem=PROBLEMS["inline-size"], profiles=Profiles())
    inputs, decisions = env.default_decisions(cast(Compiler, compiler), modules, 10, seed=1)
    assert len(read) > 1
    assert len(decisions) == 10 and decisions.max() > 1000
    np.testing.assert_array_equal(inputs["feature"], decisions)


_MODEL = Path(__file__).parents[2] / "models" / "inline-size"


def test_a_published_policy_gives_the_network_its_shape() -> None:
    config = read_config("evolution-strategies")
    policy = start.read_policy(_MODEL, PROBLEMS["inline-size"], False, config)
    resolved = start.resolved(config, policy)
    assert resolved.hidden == policy.network.hidden != (16, 8)
    assert resolved.margin == policy.network.default_lead
    # Those asked for may be named.
    start.read_policy(_MODEL, PROBLEMS["inline-size"], False, resolved)
    assert (start.resolved(config, None).hidden, start.resolved(config, None).margin) == (
        (16, 8),
        0.25,
    )


@pytest.mark.parametrize(
    ("problem", "with_pmu", "recipe", "changes", "message"),
    [
        ("regalloc-evict", False, "ppo", {}, "a policy for inline-size, not regalloc-evict"),
        ("inline-size", True, "ppo", {}, "it reads no PMU features; leave away --profile"),
        ("inline-size", False, "ppo", {"hidden": [4]}, "its network has hidden=[32,16], the recip"),
        ("inline-size", False, "ppo", {"margin": 4}, "give --setting=margin="),
        ("inline-size", False, "cloned", {}, "cloning begins anew; take a recipe with another"),
    ],
)
def test_a_policy_for_something_else_is_refused(
    problem: str, with_pmu: bool, recipe: str, changes: dict[str, Any], message: str
) -> None:
    config = read_config(recipe).changed(changes)
    with pytest.raises(TrainingError, match="^--warm-start=.*: .*" + re.escape(message)):
        start.read_policy(_MODEL, PROBLEMS[problem], with_pmu, config)


def test_a_policy_of_other_rates_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    problem, config = PROBLEMS["inline-size"], read_config("ppo")
    with pytest.raises(TrainingError, match="its extra rates are none; give --extra-rates the"):
        start.read_policy(_MODEL, problem.with_rates(["a-rate"]), False, config)
    damaged = tmp_path / "policy"
    shutil.copytree(_MODEL, damaged)
    (damaged / "weights.npz").write_bytes(b"")
    with pytest.raises(
        TrainingError, match=r"^--warm-start: .*weights\.npz: differs from its chec"
    ):
        start.read_policy(damaged, problem, False, config)
    with pytest.raises(TrainingError, match="^--warm-start: .*No such file"):
        start.read_policy(tmp_path / "none", problem, False, config)
