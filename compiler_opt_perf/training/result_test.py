# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policies.network import Normalisation
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.training.checkpoint import Checkpoint
from compiler_opt_perf.training.compilation import Default
from compiler_opt_perf.training.config import Config
from compiler_opt_perf.training.evaluation import Evaluator, MeasuredModule, Measurement
from compiler_opt_perf.training.evolution_strategies import State
from compiler_opt_perf.training.folder import TrainingFolder
from compiler_opt_perf.training.result import final_test, result_of
from compiler_opt_perf.training.rewards import Costs
from compiler_opt_perf.training.run import Clock, Run
from compiler_opt_perf.training.split import Split

# What the weights cost on the modules for each purpose; the choice has seen all but the last.
_CHANGES = {"p/training": -0.3, "p/validation": -0.2, "p/test": 0.1}


class _Evaluator:
    """Stands for compilations."""

    def measure(
        self, candidates: Sequence[Any], modules: Sequence[MeasuredModule], label: str
    ) -> list[Measurement]:
        del label
        (one,) = modules
        return [Measurement(_CHANGES[one.module.name], (), 1)] * len(candidates)


def test_the_result_is_that_of_modules_that_neither_trained_nor_chose(tmp_path: Path) -> None:
    split = Split(
        *(
            (MeasuredModule(Module(name, Path(name), ()), Default(Costs({}), 1, 0.0), Path()),)
            for name in _CHANGES
        )
    )
    reward = SimpleNamespace(name="text bytes")
    run = Run(
        cast(Any, SimpleNamespace(problem=PROBLEMS["inline-size"], reward=reward)),
        TrainingFolder(tmp_path),
        Config(),
        cast(Any, None),
        {},
        split,
        {},
        {},
        Clock(time.monotonic()),
    )
    weights = np.zeros(1, np.float32)
    record = {"best_change": -0.2, "warm_start_change": -0.1}
    checkpoint = Checkpoint(
        State.start(weights), weights, weights, Normalisation(weights, weights), record
    )
    result = result_of(run, final_test(run, checkpoint, cast(Evaluator, _Evaluator())))
    assert (result.test_change, result.validation_change) == (0.1, -0.2)
    assert result.is_worse
