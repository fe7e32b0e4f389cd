# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policies.network import WEIGHT_LIMIT, Normalisation
from compiler_opt_perf.policies.problem import PROBLEMS
from compiler_opt_perf.training.checkpoint import Checkpoint
from compiler_opt_perf.training.compilation import Default
from compiler_opt_perf.training.config import Config
from compiler_opt_perf.training.evaluation import Evaluator, MeasuredModule, Measurement
from compiler_opt_perf.training.evolution_strategies import State
from compiler_opt_perf.training.folder import TrainingFolder
from compiler_opt_perf.training.rewards import Costs
from compiler_opt_perf.training.run import Clock, Run
from compiler_opt_perf.training.search import evolve
from compiler_opt_perf.training.split import Split


class _Larger:
    """Stands for compilations: a candidate is the cheaper the larger its first weight is."""

    compilations = failures = 0

    def measure(
        self, candidates: Sequence[Any], modules: Sequence[Any], label: str | None = None
    ) -> list[Measurement]:
        del label
        return [Measurement(-float(weights[0]), (), len(modules)) for weights in candidates]


def test_the_mean_stays_within_the_range_of_weights(tmp_path: Path) -> None:
    modules = [
        MeasuredModule(Module(name, Path(name), ()), Default(Costs({}), 1, 0.0), Path())
        for name in ("p/a", "p/b", "p/c")
    ]
    split = Split(*((module,) for module in modules))
    config = Config(generations=20, pairs=4, learning_rate=0.1, sigma=0.1)
    start = np.array([0.9, 0.0], np.float32)
    record = {
        "modules": split.names,
        "curve": [{"generation": 0, "elapsed_s": 0.0}],
        "best_change": -0.9,
        "best_generation": 0,
    }
    run = Run(
        cast(Any, SimpleNamespace(problem=PROBLEMS["inline-size"])),
        TrainingFolder(tmp_path),
        config,
        cast(Any, None),
        {},
        split,
        {},
        {},
        Clock(time.monotonic()),
    )
    checkpoint = Checkpoint(State.start(start), start, start, Normalisation(start, start), record)
    checkpoint = evolve(run, checkpoint, cast(Evaluator, _Larger()))
    assert checkpoint.state.generation == 20
    # It would have gone further.
    assert checkpoint.state.mean[0] == WEIGHT_LIMIT
    assert np.abs(checkpoint.state.mean).max() <= WEIGHT_LIMIT
