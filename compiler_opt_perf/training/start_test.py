# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.training import start
from compiler_opt_perf.training.compilation import Default
from compiler_opt_perf.training.config import read_config
from compiler_opt_perf.training.evaluation import MeasuredModule
from compiler_opt_perf.training.rewards import Costs
from compiler_opt_perf.training.run import Run


class _Log:
    """Stands for a training log; what is selected of it is another one."""

    def __init__(self, rows: npt.NDArray[Any]):
        self.rows = rows

    def select(self, rows: npt.NDArray[Any]) -> "_Log":
        return _Log(self.rows[rows].copy())

    def inputs(self, *_: object) -> dict[str, npt.NDArray[Any]]:
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

    monkeypatch.setattr(start, "read_log", read_log)
    modules = [
        MeasuredModule(Module(name, Path(name), ()), Default(Costs({}), 1000, 0.0), Path(name))
        for name in "0123"
    ]
    run = SimpleNamespace(
        config=read_config("cloned").changed({"rows": 10}),
        problem=PROBLEMS["inline-size"],
        with_pmu=False,
        compiler=SimpleNamespace(profiles=Profiles()),
    )
    inputs, decisions = start.default_decisions(cast(Run, run), modules)
    assert len(read) > 1
    assert len(decisions) == 10 and decisions.max() > 1000
    np.testing.assert_array_equal(inputs["feature"], decisions)
