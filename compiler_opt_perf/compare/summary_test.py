# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_opt_perf.compare.comparison import (
    Comparison,
    FunctionScores,
    ModuleComparison,
    read_comparison,
)
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.summary import CostChange, summarise, to_json
from compiler_opt_perf.compare.testing import EVICT, INLINE
from compiler_opt_perf.cost.regalloc_score import score_ratio
from compiler_opt_perf.run.files import write_json


def _module(
    name: str,
    text: tuple[int, int] = (100, 100),
    functions: tuple[FunctionScores, ...] = (),
    times: tuple[tuple[float, ...], tuple[float, ...]] = ((1.0,), (1.0,)),
) -> ModuleComparison:
    return ModuleComparison(name, *text, functions, 10, 5, 1, 2, *times)


def _comparison(*modules: ModuleComparison, seed: int = 1) -> Comparison:
    return Comparison("p", "-O2", ("release",), seed, "processor time", modules)


def _value(change: CostChange | None) -> float:
    assert change is not None
    return change.value


def test_means_are_geometric_over_modules_and_then_over_programs() -> None:
    summary = summarise(
        _comparison(
            _module("a/1", (100, 200)),
            _module("a/2", (1000, 500)),
            _module("b/1", (100, 110)),
            _module("b/2", (9000, 9900)),
            _module("b/3", (7, 0)),
        )
    )
    first, second = summary.programs
    # Summed bytes would say -36%.
    assert (first.text_default, first.text_policy) == (1100, 700)
    assert _value(first.text) == pytest.approx(0)
    assert _value(second.text) == pytest.approx(0.1)
    assert _value(summary.total.text) == pytest.approx(math.sqrt(1.1) - 1)
    assert (first.name, first.modules, summary.total.modules) == ("a", 2, 5)
    assert (summary.total.decisions, summary.total.with_pmu) == (50, 25)
    assert list(summary.left_out.values()) == [("b/3",)]
    assert _value(summary.modules[0].text) == pytest.approx(1)
    assert summary.modules[0].text is not None and summary.modules[0].text.low is None


def test_scores_are_ratios_of_functions_not_of_sums() -> None:
    # One function has the hottest loop; two are made half as costly.
    functions = (
        FunctionScores("hot", None, 1e12, 1.001e12),
        FunctionScores("b", None, 4e6, 2e6),
        FunctionScores("c", None, 4e6, 2e6),
    )
    summary = summarise(_comparison(_module("p/1", functions=functions)))
    assert _value(summary.total.score) == pytest.approx((1.001 * 0.25) ** (1 / 3) - 1)
    assert summary.weighted == () and not summary.left_out
    # Where calls are known they are the weights.
    called = [replace(one, calls=calls) for one, calls in zip(functions, (1, 3, 0), strict=True)]
    summary = summarise(_comparison(_module("p/1", functions=tuple(called))))
    assert _value(summary.total.score) == pytest.approx((1.001 * 0.5**3) ** (1 / 4) - 1)
    assert summary.weighted == ("p",)
    assert list(summary.left_out.values()) == [("p/1: c",)]


@pytest.mark.parametrize("calls", [(None, None, None, None), (3, 1, 0, 2)])
def test_scores_compare_as_in_training(calls: tuple[int | None, ...]) -> None:
    """Functions whose cost is zero before or after count, too."""
    names = ("f", "spills", "free", "spills no more")
    pairs = ((4.0, 2.0), (0.0, 3.0), (0.0, 0.0), (3.0, 0.0))
    functions = tuple(
        FunctionScores(name, called, *pair)
        for name, called, pair in zip(names, calls, pairs, strict=True)
    )
    summary = summarise(_comparison(_module("p/1", functions=functions)))
    ratio = score_ratio(
        {name: default for name, (default, _) in zip(names, pairs, strict=True)},
        {name: policy for name, (_, policy) in zip(names, pairs, strict=True)},
        {name: called for name, called in zip(names, calls, strict=True) if called is not None},
    )
    assert _value(summary.total.score) == pytest.approx(ratio - 1)
    if calls[0] is None:
        assert ratio == pytest.approx((2.01 / 4.01) ** 0.25)
        assert not summary.left_out


def test_what_has_no_ratio_is_named() -> None:
    functions = (
        FunctionScores("kept", None, 4e7, 2e7),
        FunctionScores("old", None, 3.0, None),
        FunctionScores("new", None, None, 3.0),
    )
    summary = summarise(
        _comparison(_module("p/1", functions=functions), _module("q/1", functions=functions[1:]))
    )
    assert _value(summary.total.score) == pytest.approx(-0.5)
    assert summary.programs[1].score is None
    assert summary.left_out == {
        "functions without an eviction under the policy, of the score": ("p/1: old", "q/1: old"),
        "functions without an eviction under the default policy, of the score": (
            "p/1: new",
            "q/1: new",
        ),
    }


def test_json_holds_costs_and_no_summed_scores() -> None:
    functions = (FunctionScores("f", 3, 4e7, 2e7), FunctionScores("g", None, 0.0, 1.0))
    times = ((2.0, 2.0, 2.0), (2.02, 2.04, 2.02))
    modules = [_module(f"p/{i}", functions=functions, times=times) for i in range(3)]
    value = json.loads(json.dumps(to_json(_comparison(*modules, seed=7))))
    assert (value["version"], value["seed"]) == (2, 7)
    total = value["summary"]["total"]
    score = {"value": -0.5, "low": -0.5, "high": -0.5, "resolution": 0.0}
    assert total["score"] == pytest.approx(score)
    assert total["compile_time"]["value"] == pytest.approx(0.01)
    assert set(total) == set(value["summary"]["programs"][0])
    assert not any("score_" in field for field in total)
    assert value["summary"]["weighted_by_calls"] == ["p"]
    assert value["summary"]["left_out"] == {
        "functions that the profiled run did not call, of the score": [
            f"p/{i}: g" for i in range(3)
        ]
    }


def test_intervals_hold_the_truth_19_times_of_20() -> None:
    random = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        logs = random.normal(0.02, 0.05, (2, 6))
        modules = [
            _module(f"{program}/{i}", (1_000_000, round(1_000_000 * math.exp(log))))
            for program, row in zip("ab", logs, strict=True)
            for i, log in enumerate(row)
        ]
        change = summarise(_comparison(*modules)).total.text
        assert change is not None and change.low is not None and change.high is not None
        held += change.low <= math.expm1(0.02) <= change.high
    assert 180 <= held <= 200


def test_the_seed_gives_the_interval() -> None:
    modules = [_module(f"p/{i}", (1000, 900 + 7 * i)) for i in range(9)]
    one, again = (summarise(_comparison(*modules)).total.text for _ in range(2))
    other = summarise(_comparison(*modules, seed=2)).total.text
    assert one == again != other
    assert _value(one) == _value(other)


def test_compile_times_are_medians_of_pairs() -> None:
    # The machine became faster, and one pair was disturbed.
    default = (3.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0)
    policy = (*(1.01 * time for time in default[:-1]), 5.0)
    summary = summarise(_comparison(_module("p/1", times=(default, policy))))
    change = summary.total.compile_time
    assert _value(change) == pytest.approx(0.01)
    assert change is not None and change.low is not None and change.resolution is not None
    # Two pairs tell no interval.
    few = summarise(_comparison(_module("p/1", times=(default[:2], policy[:2]))))
    assert _value(few.total.compile_time) == pytest.approx(0.01)
    assert few.total.compile_time is not None and few.total.compile_time.low is None
    assert few.total.text == CostChange(0.0)


def test_a_comparison_survives_its_file(tmp_path: Path) -> None:
    for comparison in (INLINE, EVICT):
        write_json(tmp_path / "c.json", to_json(comparison))
        assert read_comparison(tmp_path / "c.json") == comparison


def _damaged(change: Callable[[dict[str, Any]], None]) -> str:
    value = json.loads(json.dumps(to_json(EVICT)))
    change(value)
    return json.dumps(value)


def _changed(name: str, content: Any) -> str:
    return _damaged(lambda value: value["modules"][0].update({name: content}))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("{", ""),
        (_damaged(lambda value: value.update(version=1)), r"\$\.version: expected 2, found 1"),
        (_damaged(lambda value: value.update(modules=[])), "`array` of length >= 1"),
        (_damaged(lambda value: value.pop("modes")), r"\$\.modes: is missing"),
        (_changed("text_default", -1), r"modules\[0\].text_default: expected `int` >= 0"),
        (_changed("compile_default", [10**400]), "number out of range, found 1000"),
        (_changed("compile_default", [float("nan")]), "expected `float` >= 0.0, found NaN"),
        (_changed("compile_default", [0.0]), "expected pairs above 0"),
        (_changed("compile_default", []), "expected pairs above 0"),
        (_changed("functions", [{"name": "f", "calls": 1.5}]), r"calls: expected `int \| null`"),
    ],
)
def test_a_damaged_comparison_is_named(tmp_path: Path, damage: str, problem: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(damage)
    with pytest.raises(
        CompareError, match=rf"c\.json.*{problem}.*; write it with `cop compare policy`"
    ):
        read_comparison(path)
