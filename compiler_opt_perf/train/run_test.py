# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import time
from typing import Any, cast

import numpy as np
import pytest

from compiler_opt_perf.policy.network import Normalisation
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.config import read_config
from compiler_opt_perf.train.run import Clock, Run


@pytest.mark.parametrize(
    ("budget_s", "ended", "over"),
    [
        # There is time for another generation.
        (100.0, None, False),
        # The run took longer than a generation of the next run would.
        (100.0, {"budget_s": 100.0}, True),
        (99.0, {"budget_s": 100.0}, True),
        # A larger one, or none, goes on.
        (101.0, {"budget_s": 100.0}, False),
        (0.0, {"budget_s": 100.0}, False),
        # Ended by the number of generations, which is larger now.
        (100.0, {"budget_s": 0.0}, False),
    ],
)
def test_a_used_up_budget_stays_used_up_however_fast_the_next_run_is(
    budget_s: float, ended: dict[str, Any] | None, over: bool
) -> None:
    config = read_config("evolution-strategies").changed({"budget_s": budget_s})
    nothing = cast(Any, None)
    run = Run(nothing, nothing, config, nothing, {}, nothing, {}, {}, Clock(time.monotonic()))
    record = {"curve": _curve(5, 9), "stage": 0, "iteration": 1}
    record |= {} if ended is None else {"ended": ended}
    assert run.is_over(_checkpoint(record)) == over


@pytest.mark.parametrize(
    ("most", "stage", "over"),
    # Another iteration of the same stage takes as many as the one before; the first of another
    # stage begins while any are left.
    [(0, 0, False), (12, 0, True), (13, 0, False), (9, 1, True), (10, 1, False)],
)
def test_compilations_are_a_budget(most: int, stage: int, over: bool) -> None:
    config = read_config("labels-polished").changed({"compilations": most})
    nothing = cast(Any, None)
    run = Run(nothing, nothing, config, nothing, {}, nothing, {}, {}, Clock(time.monotonic()))
    record = {"curve": _curve(5, 9), "stage": stage, "iteration": 1 - stage}
    assert run.is_over(_checkpoint(record)) == over


def _curve(*compilations: int) -> list[dict[str, Any]]:
    return [
        {"generation": i, "elapsed_s": 0.001 * i, "stage": 0, "compilations": count}
        for i, count in enumerate(compilations)
    ]


def _checkpoint(record: dict[str, Any]) -> Checkpoint:
    weights = np.zeros(1, np.float32)
    return Checkpoint({"weights": np.zeros(1)}, weights, Normalisation(weights, weights), record)
