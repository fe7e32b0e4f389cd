# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What timed comparisons of programs share: the order in a round, layouts, and paired changes."""

import math
import random
import statistics
from collections.abc import Sequence

import msgspec

_LEVEL = 0.95
#: With fewer rounds, no two of the sorted changes make a 95% interval.
LEAST_ROUNDS = 6


def round_order(number: int, count: int) -> list[int]:
    """The order in which `count` programs run in a round: random, the same for one number."""
    order = list(range(count))
    random.Random(number).shuffle(order)
    return order


def layout_flags(layout: int) -> list[str]:
    """Flags for a link by clang that put a program's functions in another order.

    Args:
      layout: a number for each order; 0 is the program's own.
    """
    if not layout:
        return []
    # Objects that were compiled with a profile say which functions call each other. By default LLD
    # puts these in one order, the hot ones, and shuffles the others only.
    unsorted = "-Wl,--call-graph-profile-sort=none"
    return [unsorted, f"-Wl,--shuffle-sections=.text*={layout}", "-Wl,--strip-all"]


class TimeChange(msgspec.Struct, frozen=True):
    """A change as a share, -0.01 for 1% less, and its 95% interval."""

    value: float
    low: float
    high: float


def paired_change(seconds: Sequence[float], base: Sequence[float]) -> TimeChange:
    """The change of time from `base` to `seconds`, measured in the same rounds.

    It is the median of the rounds' ratios. The interval's ends are two of the sorted ratios,
    chosen by the binomial distribution (the sign test's interval): it assumes nothing of how
    times are distributed.

    Args:
      seconds, base: [R] times in R rounds, R at least `LEAST_ROUNDS`.
    """
    count = len(seconds)
    if count < LEAST_ROUNDS:
        raise ValueError(f"{count} rounds; expected {LEAST_ROUNDS} or more")
    ratios = sorted(one / other - 1 for one, other in zip(seconds, base, strict=True))
    tail, left_out = 0.0, -1
    while tail <= (1 - _LEVEL) / 2:
        left_out += 1
        tail += math.comb(count, left_out) / 2**count
    return TimeChange(statistics.median(ratios), ratios[left_out - 1], ratios[count - left_out])
