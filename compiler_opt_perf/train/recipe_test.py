# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from pathlib import Path

import pytest

from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.train.errors import TrainingError
from compiler_opt_perf.train.recipe import read_recipe

_SHIPPED = REPO_ROOT / "models" / "inline-size" / "recipe.toml"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 1", "seed = -1", "$.seed: expected `int` >= 0, found -1"),
        ("seed = 1", "seed = 1\nspeed = 2", "$: object contains unknown field `speed`"),
        ("seed = 1", "seed == 1", "not TOML: "),
        ("seed = 1", "", "$.seed: is missing"),
        ('"bzip2", "tcc"', '"bzip2", "lua"', "$.programs.test: lua is named twice"),
        ('"bzip2", "tcc"', '"bzip2", "bzip2"', "$.programs.validation: bzip2 is named twice"),
        ("rounds = 1", "rounds = 0", "$.labels.rounds: expected `int` >= 1, found 0"),
        ("hidden = [32, 16]", "hidden = [32, 63]", "$.network.hidden[1]: expected `int` <= 62"),
        ("hidden = [32, 16]", "hidden = []", "$.network.hidden: expected `array` of length >= 1"),
        ("leads = [0.25, 0.5", "leads = [0.25, 0.501", "$.network.leads[1]: expected `float` that"),
        ("least_share = 0.1", "least_share = nan", "$.trees.least_share: "),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "recipe.toml"
    text = _SHIPPED.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(TrainingError, match=re.escape(f"{path}: {message}")):
        read_recipe(path)


def test_what_is_no_recipe_is_named(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    with pytest.raises(TrainingError, match=r"recipe\.toml: No such file"):
        read_recipe(path)
    for content in (b"\xff", b"[" * 100_000, b"\0"):
        path.write_bytes(content)
        with pytest.raises(TrainingError, match=r"recipe\.toml: not TOML"):
            read_recipe(path)
