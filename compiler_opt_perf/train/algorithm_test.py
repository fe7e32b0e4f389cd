# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.train.algorithm import require_like
from compiler_opt_perf.train.env import draw


def test_a_task_takes_part_in_its_share_of_the_iterations() -> None:
    shares = [1.0, 1.0, 0.5, 0.5, 0.1, 0.1]
    used = np.zeros(len(shares))
    for seed in range(400):
        used[draw(shares, 6, seed)] += 1
    np.testing.assert_allclose(used / 400, shares, atol=0.08)
    # Where none of those drawn would take part, the likeliest does.
    assert draw([1e-9, 1e-9, 1e-9, 2e-9, 1e-9, 1e-9], 6, 1) == [3]
    assert len(draw([1.0] * 10, 4, 1)) == 4
    assert draw(shares, 3, 5) == draw(shares, 3, 5)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("weights", np.zeros(3), "weights is float64 [3], expected float64 [2]"),
        ("weights", np.zeros(2, np.int64), "weights is int64 [2], expected float64 [2]"),
        ("rows.a.x", np.zeros((5, 2)), "rows.a.x is float64 [5, 2], expected float64 [0, 3]"),
        ("rows.a.x", np.zeros((4, 3)), "rows.a.y has 5 rows, others 4"),
        ("more", np.zeros(1), "expected arrays weights, rows.a.x, rows.a.y, found"),
    ],
)
def test_a_state_of_another_algorithm_is_told(
    name: str, array: npt.NDArray[Any], message: str
) -> None:
    template = {"weights": np.zeros(2), "rows.a.x": np.zeros((0, 3)), "rows.a.y": np.zeros(0)}
    state = {"weights": np.ones(2), "rows.a.x": np.ones((5, 3)), "rows.a.y": np.ones(5)}
    require_like(state, template)
    with pytest.raises(ValueError, match=re.escape(message)):
        require_like({**state, name: array}, template)
