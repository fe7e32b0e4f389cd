# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import random
from collections.abc import Sequence

import pytest

from compiler_opt_perf.compare.bisect import minimize


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_fails_and_nothing_of_it_can_be_left_out(seed: int) -> None:
    draw = random.Random(seed)
    items = [str(number) for number in range(draw.randint(1, 60))]
    needed = set(draw.sample(items, draw.randint(1, min(5, len(items)))))
    asked = []

    def fails(some: Sequence[str]) -> bool:
        asked.append(tuple(some))
        return needed <= set(some)

    kept: list[list[str]] = []
    left = minimize(items, fails, lambda some: kept.append(list(some)))
    assert set(left) == needed
    assert left == [one for one in items if one in needed], "in their order"
    assert all(needed <= set(some) for some in kept)
    assert not any(len(some) in (0, len(items)) for some in asked)


def test_it_needs_few_questions_for_one_of_many() -> None:
    items = [str(number) for number in range(1024)]
    asked = []

    def fails(some: Sequence[str]) -> bool:
        asked.append(some)
        return "700" in some

    assert minimize(items, fails) == ["700"]
    assert len(asked) <= 20


def test_where_weights_add_up_enough_of_them_are_left() -> None:
    items = [str(number) for number in range(16)]
    assert len(minimize(items, lambda some: len(some) >= 7)) == 7
