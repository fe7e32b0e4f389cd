# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from compiler_opt_perf.run.progress import pace


@pytest.mark.parametrize(
    ("count", "seconds", "shown"),
    [
        (100, 10.0, "10.0/s"),
        (3, 2.0, "1.5/s"),
        # A labelling of a module takes half a minute: "0.0/s" says nothing.
        (2, 61.0, "30.5 s each"),
        (1, 3600.0, "3600.0 s each"),
        (1, 1.0, "1.0 s each"),
        (0, 5.0, "none yet"),
        (0, 0.0, "none yet"),
    ],
)
def test_a_slow_pace_is_told_in_seconds(count: int, seconds: float, shown: str) -> None:
    assert pace(count, seconds) == shown


def test_no_time_at_all_is_a_pace() -> None:
    assert pace(3, 0.0).endswith("/s")
