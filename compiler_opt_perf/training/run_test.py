# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import time
from typing import Any, cast

import numpy as np
import pytest

from compiler_opt_perf.policies.network import Normalisation
from compiler_opt_perf.training.checkpoint import Checkpoint
from compiler_opt_perf.training.config import Config
from compiler_opt_perf.training.evolution_strategies import State
from compiler_opt_perf.training.run import Clock, Run


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
    config = Config(generations=1000, budget_s=budget_s)
    nothing = cast(Any, None)
    run = Run(nothing, nothing, config, nothing, {}, nothing, {}, {}, Clock(time.monotonic()))
    curve = [{"generation": 0, "elapsed_s": 0.0}, {"generation": 1, "elapsed_s": 0.001}]
    record = {"curve": curve, **({} if ended is None else {"ended": ended})}
    weights = np.zeros(1, np.float32)
    checkpoint = Checkpoint(
        State.start(weights), weights, weights, Normalisation(weights, weights), record
    )
    assert run.is_over(checkpoint) == over
