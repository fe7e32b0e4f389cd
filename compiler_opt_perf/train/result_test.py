# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.policy.encoding import Normalisation
from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.train import result
from compiler_opt_perf.train.checkpoint import Checkpoint
from compiler_opt_perf.train.compilation import Default
from compiler_opt_perf.train.config import read_config
from compiler_opt_perf.train.driver import Training
from compiler_opt_perf.train.folder import TrainingFolder
from compiler_opt_perf.train.measure import CandidateMeasurer, MeasuredModule, Measurement
from compiler_opt_perf.train.result import final_test, result_of
from compiler_opt_perf.train.rewards import Costs
from compiler_opt_perf.train.split import Split

# What the weights cost on the modules for each purpose; the choice has seen all but the last.
_CHANGES = {"p/training": -0.3, "p/validation": -0.2, "p/test": 0.1}


class _Measurer:
    """Stands for compilations."""

    compilations = 0

    def measure(
        self, network: Any, candidates: Sequence[Any], modules: Sequence[MeasuredModule], label: str
    ) -> list[Measurement]:
        del network, label
        (one,) = modules
        return [Measurement(_CHANGES[one.module.name], (), 1)] * len(candidates)


def test_the_result_is_that_of_modules_that_neither_trained_nor_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = Split(
        *(
            (MeasuredModule(Module(name, Path(name), ()), Default(Costs({}), 1, 0.0), Path()),)
            for name in _CHANGES
        )
    )
    reward = SimpleNamespace(name="text bytes")
    compiler = SimpleNamespace(problem=PROBLEMS["inline-size"], reward=reward, copies=False)
    config = read_config("evolution-strategies")
    run = SimpleNamespace(
        compiler=compiler,
        problem=compiler.problem,
        folder=TrainingFolder(tmp_path),
        config=config,
        split=split,
        network=lambda _: None,
    )
    weights = np.zeros(1, np.float32)
    record = {"best_change": -0.2, "start_change": -0.1, "curve": [{"generation": 0}]}
    state = {"weights": weights.astype(np.float64)}
    checkpoint = Checkpoint(state, weights, Normalisation(weights, weights), record)
    monkeypatch.setattr(result, "_grid_loss", lambda *_: {"loss": 0.0})
    ended = final_test(cast(Training, run), checkpoint, cast(CandidateMeasurer, _Measurer()))
    found = result_of(cast(Training, run), ended)
    assert (found.test_change, found.validation_change) == (0.1, -0.2)
    assert found.is_worse


def _ended(
    change: float, best_generation: int, labels: int | None, iterations: int
) -> tuple[SimpleNamespace, Checkpoint]:
    """An ended training of so many iterations, of ten that were asked for."""
    run = SimpleNamespace(
        problem=PROBLEMS["inline-size"],
        with_pmu=False,
        warm_start=None,
        config=SimpleNamespace(iterations=10),
        clock=SimpleNamespace(seconds=79.0),
        folder=TrainingFolder(Path("t")),
        compiler=SimpleNamespace(reward=SimpleNamespace(name="text bytes")),
    )
    facts = {} if labels is None else {"labels": labels}
    curve = [{"generation": 0}, *({"generation": n + 1, **facts} for n in range(iterations))]
    record = {
        **{"best_generation": best_generation, "best_change": 0.0, "start_change": 0.0},
        **{"ended": {"test_change": change, "test_failed": []}, "curve": curve},
    }
    weights = np.zeros(1, np.float32)
    return run, Checkpoint({}, weights, Normalisation(weights, weights), record)


@pytest.mark.parametrize(
    ("change", "best_generation", "labels", "iterations", "words"),
    [
        (-0.01, 3, 79, 10, []),
        (
            0.0,
            0,
            79,
            3,
            [
                "79 labels in 79 s, which are too few",
                *("no iteration led", "3 of 10 it", "--warm-start"),
            ],
        ),
        # What a larger budget would buy.
        (
            0.0,
            5,
            158,
            10,
            ["2,000 labels take about 17 minutes here", "--warm-start"],
        ),
        (0.0, 2, 16_000, 10, ["--warm-start=inline-size"]),
        (0.01, 2, None, 4, ["the budget ended it after 4 of 10", "--warm-start"]),
        (0.0, 0, None, 10, ["no iteration led", "--warm-start"]),
    ],
)
def test_what_is_no_better_than_the_default_says_why(
    change: float, best_generation: int, labels: int | None, iterations: int, words: list[str]
) -> None:
    run, checkpoint = _ended(change, best_generation, labels, iterations)
    found = result.remarks(cast(Training, run), checkpoint)
    assert len(found) == len(words)
    assert all(word in one for word, one in zip(words, found, strict=True))
    if words:
        # Such a training needs not be told to do what it did; nor one for other policies.
        for own in ({"warm_start": object()}, {"with_pmu": True}):
            other = SimpleNamespace(**{**vars(run), **own})
            assert len(result.remarks(cast(Training, other), checkpoint)) == len(words) - 1
