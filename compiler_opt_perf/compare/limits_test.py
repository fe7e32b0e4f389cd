# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from pathlib import Path

import pytest

from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.limits import DEFAULT, Limit, MetricLimits, read_limits
from compiler_opt_perf.compare.metrics import METRICS


def test_the_default_has_a_limit_for_each_metric() -> None:
    limits = read_limits(DEFAULT)
    assert limits.keys() == {metric.name for metric in METRICS}
    assert all(limit.total is not None for limit in limits.values())


def test_the_largest_of_the_limits_counts() -> None:
    limits = MetricLimits(Limit(32, 0.01), module=Limit(0, 0.5), noise=3)
    assert limits.allowed("total", 1000, 0) == 32
    assert limits.allowed("total", 10_000, 0) == 100
    assert limits.allowed("total", 10_000, 50) == 150
    assert limits.allowed("module", -10, 0) == 5
    assert limits.allowed("program", 1000, 50) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[text", "not TOML: "),
        ("[text]\ntotal = 3", '$["text"].total: expected `object'),
        ("[text]\ntotal = {relative = -1}", '$["text"].total.relative: expected `float` >= 0'),
        ("[text]\ntotal = {relative = nan}", '$["text"].total.relative: expected `float`'),
        ("[text]\nsum = {}", '$["text"]: object contains unknown field `sum`'),
        ("[texts]\nnoise = 3", "no metric 'texts'; there are failures, crashes"),
        ("", "has no limits"),
    ],
)
def test_wrong_limits_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(text)
    with pytest.raises(CompareError, match=f"{re.escape(str(path))}: .*{re.escape(problem)}"):
        read_limits(path)
    with pytest.raises(CompareError, match="No such file"):
        read_limits(tmp_path / "none.toml")
