# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.corpus.profiles import Profiles
from compiler_opt_perf.policy.encoding import Normalisation
from compiler_opt_perf.policy.network import WEIGHT_LIMIT, Network
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_network
from compiler_opt_perf.train import driver
from compiler_opt_perf.train.algorithms.evolution_strategies import EvolutionStrategies
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.compilation import Default
from compiler_opt_perf.train.config import Config, Programs, read_config
from compiler_opt_perf.train.driver import Clock, Training, search
from compiler_opt_perf.train.folder import TrainingFolder
from compiler_opt_perf.train.linked import LinkedResults, ProgramResult
from compiler_opt_perf.train.measure import CandidateMeasurer, MeasuredModule, Measurement
from compiler_opt_perf.train.rewards import Costs
from compiler_opt_perf.train.split import Split


def make_run(config: Config, folder: Path = Path("t"), split: Split | None = None) -> Training:
    """A run without a compiler."""
    return Training(
        compiler=cast(
            Any,
            SimpleNamespace(
                problem=PROBLEMS["inline-size"], profiles=Profiles(), copies=False, folding=False
            ),
        ),
        folder=TrainingFolder(folder),
        config=config,
        pool=cast(Any, None),
        calls={},
        copies={},
        linked={},
        linker=Path(),
        split=split or Split((), (), ()),
        left_out={},
        large={},
        clock=Clock(time.monotonic()),
    )


class _Larger:
    """Stands for compilations: a candidate is the cheaper the larger its first weight is."""

    compilations = failures = 0

    def measure(
        self,
        network: Network,
        candidates: Sequence[Any],
        modules: Sequence[Any],
        label: str | None = None,
        *,
        on_grid: bool = True,
    ) -> list[Measurement]:
        del network, label, on_grid
        return [Measurement(-float(weights[0]), (), len(modules)) for weights in candidates]


def test_the_mean_stays_within_the_range_of_weights(tmp_path: Path) -> None:
    checkpoint = _searched(Config((_STAGE,), hidden=(1,), margin=0.25), tmp_path)
    assert checkpoint.generation == checkpoint.iteration == 20
    # It would have gone further.
    weights = checkpoint.state["weights"]
    assert weights[0] == WEIGHT_LIMIT
    assert np.abs(weights).max() <= WEIGHT_LIMIT


@pytest.mark.parametrize("grows_folded", [False, True])
def test_no_policy_is_chosen_by_which_a_program_grows_by_more_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, grows_folded: bool
) -> None:
    def linked(
        run: Training, policies: Sequence[tuple[Network, Any]], names: Sequence[str], label: str
    ) -> list[LinkedResults]:
        """The larger the first weight, the smaller are programs in the mean; but one grows."""
        del run, label
        found: list[LinkedResults] = []
        for _, weights in policies:
            less = (100_000, 100_000 - round(4000 * weights[0]))
            more = (100_000, 100_000 + round(1000 * weights[0]))
            shrinks, grows = names
            results = (
                ProgramResult(shrinks, less, (1, 1)),
                ProgramResult(grows, less, (1, 1), more)
                if grows_folded
                else ProgramResult(grows, more, (1, 1)),
            )
            found.append((results, ()))
        return found

    monkeypatch.setattr(driver, "link", linked)
    programs = Programs(("training",), ("a", "b"), ("test",))
    config = Config((_STAGE,), hidden=(1,), margin=0.25, programs=programs, copies=True)
    free = _searched(msgspec.structs.replace(config, folding=True), tmp_path)
    assert free.best[0] > 1
    limited = _searched(msgspec.structs.replace(config, largest_growth=0.0096), tmp_path)
    assert 0.9 < limited.best[0] < 0.961
    # All make it grow by 0.9% or more.
    none = _searched(msgspec.structs.replace(config, largest_growth=0.001), tmp_path)
    assert none.best[0] == np.float32(0.9) and none.record["best_generation"] == 0


_STAGE = EvolutionStrategies(iterations=20, pairs=4, learning_rate=0.02, sigma=0.1)


def _searched(config: Config, folder: Path) -> Checkpoint:
    """A search that begins with 0.9 as the first weight."""
    modules = [
        MeasuredModule(Module(name, Path(name), ()), Default(Costs({}), 1, 0.0), Path())
        for name in ("p/a", "p/b", "p/c")
    ]
    split = Split(*((module,) for module in modules))
    network = random_network(PROBLEMS["inline-size"], (1,))
    start = np.zeros(network.size, np.float32)
    start[0] = 0.9
    record = {
        "modules": split.names,
        "stage": 0,
        "iteration": 0,
        "curve": [{"generation": 0, "elapsed_s": 0.0, "stage": 0, "compilations": 0}],
        "best_change": -0.9 if config.programs is None else 0.0,
        "best_generation": 0,
        "margin": 0.25,
        "asked": None,
    }
    linked = {} if config.programs is None else dict.fromkeys(config.programs.validation, ())
    run = dataclasses.replace(make_run(config, folder, split), linked=linked)
    state = {"weights": start.astype(np.float64)}
    checkpoint = Checkpoint(state, start, network.normalisation, record)
    return search(run, checkpoint, cast(CandidateMeasurer, _Larger()))


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
    run = make_run(config)
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
    run = make_run(config)
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
