# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import dataclasses
from pathlib import Path

import pytest

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.train.algorithms.cloning import Cloning
from compiler_opt_perf.train.compilation import Default
from compiler_opt_perf.train.config import Config, Programs
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.measure import MeasuredModule
from compiler_opt_perf.train.rewards import Costs, Reward
from compiler_opt_perf.train.split import split_modules, usable_modules

STAGES = (Cloning(),)


def module(number: int, decisions: int = 10, costs: Costs | None = None) -> MeasuredModule:
    name = f"p/{number:02}"
    default = Default(costs or Costs({"text": 100.0}), decisions, 0.1)
    return MeasuredModule(Module(name, Path(name), ()), default, Path(f"{name}.log"))


@pytest.mark.parametrize(("count", "sizes"), [(3, (1, 1, 1)), (8, (4, 2, 2)), (40, (24, 8, 8))])
def test_no_module_has_two_purposes(count: int, sizes: tuple[int, int, int]) -> None:
    modules = [module(number) for number in range(count)]
    split = split_modules(modules, {}, Config(STAGES))
    assert (len(split.training), len(split.validation), len(split.test)) == sizes
    names = [name for names in split.names.values() for name in names]
    assert sorted(names) == [one.module.name for one in modules]
    assert split == split_modules(modules, {}, Config(STAGES))
    if count > 3:
        assert split != split_modules(modules, {}, Config(STAGES, seed=2))
    most = split_modules(modules, {}, Config(STAGES, validation_share=0.45, test_share=0.45))
    assert min(len(names) for names in most.names.values()) >= 1


def test_large_modules_do_not_validate_while_there_are_others() -> None:
    modules = [module(number, 100_000 if number % 2 else 10) for number in range(10)]
    for seed in range(5):
        split = split_modules(modules, {}, Config(STAGES, seed=seed))
        assert all(one.default.decisions == 10 for one in split.validation)
        # They are not dropped.
        assert sum(len(names) for names in split.names.values()) == 10
    split = split_modules([module(number, 100_000) for number in range(3)], {}, Config(STAGES))
    assert len(split.validation) == 1


@pytest.mark.parametrize(
    ("adds_up", "left_out"),
    [
        # A score of 0 can be made worse.
        (False, {"p/01": "has nothing to decide"}),
        (
            True,
            {
                "p/01": "has nothing to decide",
                "p/02": "is not executed in the recorded run",
                "p/03": "compiles to no code",
            },
        ),
    ],
)
def test_modules_that_tell_nothing_are_left_out_by_name(
    adds_up: bool, left_out: dict[str, str]
) -> None:
    modules = [
        module(0),
        module(1, decisions=0),
        module(2, costs=Costs({"f": 0.0}, {"f": 0})),
        module(3, costs=Costs({"f": 0.0})),
    ]
    usable, found = usable_modules(modules, adds_up=adds_up)
    assert found == left_out
    reward = Reward("", adds_up, lambda _: Costs({}))
    for one in usable:
        costs = one.default.costs
        ratio = reward.ratio(costs, costs, {})
        assert reward.change([costs.total], [ratio], ["p"]) == 0.0
    with pytest.raises(TrainingError, match=r"only \d usable modules(.|\n)*p/01: has nothing to"):
        split_modules(usable[:2], left_out, Config(STAGES))


def test_a_compiler_that_always_fails_is_not_blamed_on_the_corpus() -> None:
    left_out = {"p/00": "cannot be measured: clang exceeds the time limit"}
    with pytest.raises(TrainingError, match=r"remove the cause(.|\n)*p/00: .*time limit") as error:
        split_modules([], left_out, Config(STAGES))
    assert "extract more" not in str(error.value)


def test_programs_are_split_as_they_are_named() -> None:
    modules = [
        dataclasses.replace(one, module=Module(f"{name}/{i}", Path(), ()))
        for name in "abcd"
        for i, one in enumerate([module(0), module(1)])
    ]
    config = Config(STAGES, programs=Programs(("a", "d"), ("b",), ("c",)))
    split = split_modules(modules, {}, config)
    assert split.names == {
        "training": ["a/0", "a/1", "d/0", "d/1"],
        "validation": ["b/0", "b/1"],
        "test": ["c/0", "c/1"],
    }
    with pytest.raises(TrainingError, match="programs: d: for no purpose; name each program"):
        split_modules(modules, {}, Config(STAGES, programs=Programs(("a",), ("b",), ("c",))))
    with pytest.raises(TrainingError, match="no usable module for validation and test"):
        split_modules([one for one in modules if one.module.program in "ad"], {}, config)
