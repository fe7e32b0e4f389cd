# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.network import WEIGHT_LIMIT
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_network
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.compilation import Default
from compiler_opt_perf.train.config import Config, EvolutionStrategies
from compiler_opt_perf.train.evaluation import Evaluator, MeasuredModule, Measurement
from compiler_opt_perf.train.folder import TrainingFolder
from compiler_opt_perf.train.rewards import Costs
from compiler_opt_perf.train.run import Clock, Run
from compiler_opt_perf.train.search import search
from compiler_opt_perf.train.split import Split


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
    stage = EvolutionStrategies(iterations=20, pairs=4, learning_rate=0.1, sigma=0.1)
    config = Config((stage,), hidden=(1,), default_lead=0.25)
    network = random_network(PROBLEMS["inline-size"], (1,))
    start = np.zeros(network.size, np.float32)
    start[0] = 0.9
    record = {
        "modules": split.names,
        "stage": 0,
        "iteration": 0,
        "curve": [{"generation": 0, "elapsed_s": 0.0, "stage": 0, "compilations": 0}],
        "best_change": -0.9,
        "best_generation": 0,
    }
    run = Run(
        cast(Any, SimpleNamespace(problem=PROBLEMS["inline-size"], profiles=Profiles())),
        TrainingFolder(tmp_path),
        config,
        cast(Any, None),
        {},
        split,
        {},
        {},
        Clock(time.monotonic()),
    )
    state = {"weights": start.astype(np.float64)}
    checkpoint = Checkpoint(state, start, network.normalisation, record)
    checkpoint = search(run, checkpoint, cast(Evaluator, _Larger()))
    assert checkpoint.generation == checkpoint.iteration == 20
    # It would have gone further.
    weights = checkpoint.state["weights"]
    assert weights[0] == WEIGHT_LIMIT
    assert np.abs(weights).max() <= WEIGHT_LIMIT
