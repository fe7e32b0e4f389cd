# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import math
from typing import Any

import pytest

from compiler_opt_perf.training.config import Config, ConfigError


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("pairs", 0, "a whole number from 1 to 10000"),
        ("pairs", -1, "a whole number from 1"),
        ("pairs", math.inf, "a whole number from 1"),
        ("pairs", 10**12, "a whole number from 1"),
        ("pairs", True, "a whole number from 1"),
        ("pairs", "8", "a whole number from 1"),
        ("sigma", math.nan, "a number from 0.0001 to 1"),
        ("sigma", 1e300, "a number from 0.0001 to 1"),
        ("learning_rate", math.nan, "a number from 0 to 1"),
        ("timeout_s", math.nan, "a number from 0.1 to 86400"),
        ("timeout_s", -1, "a number from 0.1 to 86400"),
        ("budget_s", math.nan, "a number from 0 to 1000000000"),
        ("budget_s", math.inf, "a number from 0 to 1000000000"),
        ("validation_share", math.nan, "a number from 0 to 0.9"),
        ("validation_share", 2, "a number from 0 to 0.9"),
        ("test_share", -1, "a number from 0 to 0.9"),
        ("hidden", [0], "a list of up to 8 whole numbers from 1 to 62"),
        ("hidden", [-1], "a list of up to 8"),
        ("hidden", ["a"], "a list of up to 8"),
        ("hidden", "ab", "a list of up to 8"),
        ("hidden", [100_000, 100_000], "a list of up to 8"),
        ("hidden", [1] * 9, "a list of up to 8"),
        ("warm_starts", 0, "a whole number from 1 to 100"),
        ("warm_start_rows", 0, "a whole number from 1"),
        ("workers", -1, "a whole number from 0 to 1024"),
        ("workers", 100_000, "a whole number from 0 to 1024"),
        ("label_smoothing", 2, "a number from 0 to 0.99"),
        ("memory_mib", 1, "a whole number from 64"),
        ("generations", None, "a whole number from 0"),
        ("seed", 2**64, "a whole number from 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_range(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=rf"^setting {name}=.*: expected {expected}"):
        Config().changed({name: value})


def test_settings_change_and_unknown_ones_are_named() -> None:
    config = Config().changed({"hidden": [4, 3], "budget_s": 60, "pairs": 2})
    assert (config.hidden, config.budget_s, config.pairs) == ((4, 3), 60.0, 2)
    assert config.as_json()["hidden"] == [4, 3]
    assert Config().changed(config.as_json()) == config
    with pytest.raises(ConfigError, match=r"no setting 'pears'; there are\n(.*\n)*  pairs=8: "):
        Config().changed({"pears": 2})
    with pytest.raises(ConfigError, match=r"validation_share=0\.5 and test_share=0\.5: expected"):
        Config(validation_share=0.5, test_share=0.5)
