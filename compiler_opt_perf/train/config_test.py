# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import math
import re
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.train.algorithms.evolution_strategies import EvolutionStrategies
from compiler_opt_perf.train.config import (
    DEFAULT_PRESET,
    Config,
    ConfigError,
    describe,
    presets,
    read_config,
    require_stages,
)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("evolution-strategies.pairs", 0, "$.stages[0].pairs: expected `int` >= 1, found 0"),
        ("evolution-strategies.pairs", math.inf, "$.stages[0].pairs: expected a number, found inf"),
        ("evolution-strategies.pairs", 10**12, "$.stages[0].pairs: expected `int` <= 10000"),
        ("evolution-strategies.pairs", True, "$.stages[0].pairs: expected `int`, found true"),
        ("evolution-strategies.pairs", "8", '$.stages[0].pairs: expected `int`, found "8"'),
        ("evolution-strategies.sigma", math.nan, "$.stages[0].sigma: expected a number, found nan"),
        ("evolution-strategies.sigma", 1e300, "$.stages[0].sigma: expected `float` <= 1.0"),
        ("timeout_s", -1, "$.timeout_s: expected `float` >= 0.1, found -1"),
        ("budget_s", math.inf, "$.budget_s: expected a number, found inf"),
        ("compilations", -1, "$.compilations: expected `int` >= 0"),
        ("validation_share", 2, "$.validation_share: expected `float` <= 0.9"),
        ("validation_share", 0.8, "$.validation_share: 0.8 and test_share of 0.2: expected a sum"),
        ("hidden", [0], "$.hidden[0]: expected `int` >= 1, found 0"),
        ("hidden", ["a"], '$.hidden[0]: expected `int`, found "a"'),
        ("hidden", "ab", "$.hidden: expected `array | null`"),
        ("hidden", [100_000], "$.hidden[0]: expected `int` <= 62"),
        ("hidden", [1] * 9, "$.hidden: 9 layers: expected 1 to 8"),
        ("hidden", [], "$.hidden: 0 layers: expected 1 to 8"),
        ("margin", 0.3, "$.margin: 0.3: expected a multiple of 2**-8 from 0 to 4"),
        ("margin", 5, "$.margin: 5.0: expected a multiple of 2**-8 from 0 to 4"),
        ("margin", 0, "$.margin: 0: expected cloning as the first stage"),
        ("workers", 100_000, "$.workers: expected `int` <= 1024"),
        ("memory_mib", 1, "$.memory_mib: expected `int` >= 64"),
        ("iterations", None, "$.stages[0].iterations: expected `int`, found null"),
        ("seed", 2**64, "$.seed: expected `int` <= 9223372036854775807"),
        ("stages", [{"algorithm": "cma-es", "population": 3}], "$.stages[0].population: 3: exp"),
        ("stages", [], "$.stages: expected `array` of length >= 1"),
        ("stages", [{"algorithm": "magic"}], "$.stages[0].algorithm: invalid value 'magic'"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_range(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match="^settings: " + re.escape(message)):
        read_config(DEFAULT_PRESET).changed({name: value})


def test_settings_change_and_unknown_ones_are_named() -> None:
    config = read_config("cloned").changed(
        {"hidden": [4, 3], "budget_s": 60, "evolution-strategies.pairs": 2, "iterations": 7}
    )
    assert (config.hidden, config.budget_s) == ((4, 3), 60.0)
    stage = config.stages[1]
    assert isinstance(stage, EvolutionStrategies)
    assert (stage.iterations, stage.pairs, stage.sigma) == (7, 2, 0.06)
    # That of the last stage only.
    assert config.stages[0].iterations == 1
    assert config.changed(config.as_json()) == config
    for name, hint in (
        ("pairs", "; did you mean 'evolution-strategies.pairs'?"),
        ("ppo.temperature", ""),
        (
            "evolution-strategies.pears",
            "; did you mean 'evolution-strategies.pairs' or 'evolution-strategies.modules'?",
        ),
        ("sed", "; did you mean 'seed'?"),
    ):
        with pytest.raises(ConfigError) as caught:
            config.changed({name: 2})
        stages = "whose stages are cloning, evolution-strategies"
        assert str(caught.value) == f"settings: no setting '{name}' of this recipe, {stages}{hint}"


def test_a_training_may_go_on_further_but_not_elsewhere() -> None:
    config = read_config("cloned")
    for free in ({"iterations": 9}, {"workers": 3}, {"budget_s": 1}, {"compilations": 5}):
        assert config.changed(free).fixed() == config.fixed()
    for other in ({"cloning.iterations": 2}, {"seed": 2}, {"evolution-strategies.sigma": 0.1}):
        assert config.changed(other).fixed() != config.fixed()


def test_files_and_names_are_read(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('seed = 5\n[[stages]]\nalgorithm = "evolution-strategies"\npairs = 3\n')
    assert read_config(str(path)) == Config((EvolutionStrategies(pairs=3),), seed=5)
    for name in presets():
        assert read_config(name).iterations > 0
        assert f"\n  {name}: " in describe()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "$.stages: is missing"),
        (b"\xff", "not TOML"),
        (b"stages = [", "not TOML"),
        (b"seed = nan", "$.seed: expected a number, found nan"),
        (b"seed = 2020-01-01", "$.seed: expected a text or a number"),
        (b'pears = 1\n[[stages]]\nalgorithm = "ppo"', "$: object contains unknown field `pears`"),
        (b'[[stages]]\nalgorithm = "ppo"\npairs = 1', "$.stages[0]: object contains unknown field"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(f"{path}: {message}")):
        read_config(str(path))


def test_a_missing_one_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no recipe 'magic': expected a file .* one of .*ppo"):
        read_config("magic")
    with pytest.raises(ConfigError, match="none.toml: No such file"):
        read_config(str(tmp_path / "none.toml"))


_SHIPPED = REPO_ROOT / "models" / "inline-size" / "recipe.toml"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"bzip2", "tcc"', '"bzip2", "lua"', "$.programs.test: lua is named twice"),
        ('"bzip2", "tcc"', '"bzip2", "bzip2"', "$.programs.validation: bzip2 is named twice"),
        ("[2.25, 2.5,", "[2.25, 0.501,", "$.stages[0].margins[1]: expected `float` that"),
        (
            "[2.25, 2.5, 3.0, 3.5]",
            "[]",
            "$.stages[0].inlined_margin: 0.25: expected margins, too",
        ),
        ("least_share = 0.1", "least_share = 2", "$.stages[0].trees.least_share: expected"),
        ("least_share = 0.1", "share = 0.1", "$.stages[0].trees: object contains unknown field"),
    ],
)
def test_a_wrong_value_in_the_shipped_recipe_is_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "recipe.toml"
    text = _SHIPPED.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=re.escape(f"{path}: {message}")):
        read_config(str(path))


def test_copies_are_counted_for_programs_and_their_size_only() -> None:
    config = read_config(str(_SHIPPED))
    require_stages(config, PROBLEMS["inline-size"], False, None)
    for problem, with_pmu in (("regalloc-evict", False), ("inline-size", True)):
        with pytest.raises(ConfigError, match="copies: are counted for inline-size, without"):
            require_stages(config, PROBLEMS[problem], with_pmu, None)
    with pytest.raises(ConfigError, match=r"\$\.copies: true: expected \[programs\]"):
        read_config("labels").changed({"copies": True})
    with pytest.raises(ConfigError, match=r"\$\.largest_growth: 0.01: expected copies = true"):
        read_config("labels").changed({"largest_growth": 0.01})
