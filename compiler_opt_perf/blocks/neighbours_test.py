# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shares that blocks have of windows."""

import numpy as np
import pytest

from compiler_opt_perf.blocks.neighbours import Key, numbered, shares
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.windows import Windows

GAP = 4
# Blocks 0 and 1 of a function, and two local functions of one name with a block each.
TABLE = BlockTable(
    address=np.array([0, 4, 16, 32], np.uint64),
    size=np.array([4, 4, 4, 4], np.uint32),
    block_id=np.array([0, 1, 0, 0], np.uint32),
    function=np.array([0, 0, 1, 2], np.uint32),
    entry=np.array([0, 16, 32], np.uint64),
    names=("f", "same", "same"),
)
KEYS: list[Key] = [(b"a", b""), (b"b", b""), (b"c", b""), (b"d", b"")]
ALONE = np.array([2.0, 4.0, 1.0, np.nan])


def windows(*rows: tuple[int, int, int]) -> Windows:
    """Windows of two blocks: the one before, the block, how often."""
    found = np.array(rows)
    return Windows(TABLE, found[:, :2].astype(np.uint32), found[:, 2].astype(np.uint64))


def test_blocks_are_found_by_function_id_and_executions() -> None:
    seen = windows((GAP, 0, 1), (0, 1, 10), (1, 0, 9), (1, 2, 5), (2, 3, 7))
    blocks = [(("f", 0, 10), 3), (("f", 1, 10), 2), (("same", 0, 7), 0), (("same", 0, 5), 1)]
    assert numbered(seen, blocks).tolist() == [3, 2, 1, 0, -1]
    # A candidate that lacks a block, and two functions that are alike in all.
    assert numbered(seen, [(("f", 0, 10), 3)]).tolist() == [3, -1, -1, -1, -1]
    alike = windows((GAP, 2, 5), (2, 3, 5))
    assert numbered(alike, [(("same", 0, 5), 0), (("same", 0, 5), 1)]).tolist() == [
        -1,
        -1,
        0,
        1,
        -1,
    ]


def test_a_block_takes_its_share_of_what_windows_take() -> None:
    asked: list[set[Key]] = []
    cycles = {(b"ab", b""): 3.0, (b"ba", b""): 4.5}

    def predict(keys: set[Key]) -> dict[Key, float]:
        asked.append(keys)
        return {key: cycles[key] for key in keys if key in cycles}

    seen = windows((0, 1, 600), (1, 0, 300), (2, 0, 99), (1, 2, 1))
    numbers = np.array([0, 1, 2, 3, -1])
    found = shares(seen, numbers, KEYS, ALONE, predict)
    # Half of what they take alone, then three quarters; of (c, a) nothing is known, and of blocks
    # behind which nothing was looked at, what the others take on average.
    mean = (600 * 0.5 * 4 + 300 * 0.75 * 2) / (600 * 4 + 300 * 2)
    assert found == pytest.approx([0.75, 0.5, mean, mean])
    # The rarest window is not asked for.
    assert asked == [{(b"ab", b""), (b"ba", b""), (b"ca", b"")}]


def test_blocks_without_prediction_are_passed_over() -> None:
    # Block 3 has none.
    seen = windows((3, 0, 5), (0, 1, 5), (1, 3, 4))
    numbers = np.array([0, 1, 2, 3, -1])
    found = shares(seen, numbers, KEYS, ALONE, lambda keys: dict.fromkeys(keys, 3.0))
    mean = (5 * 1 * 2 + 5 * 0.5 * 4) / (5 * 2 + 5 * 4)
    assert found == pytest.approx([1, 0.5, mean, mean])
    missing = shares(seen, np.array([-1, -1, 2, 3, -1]), KEYS, ALONE, lambda keys: {})
    assert missing == pytest.approx([1, 1, 1, 1])


def test_of_a_loop_one_iteration_is_predicted() -> None:
    asked: set[Key] = set()

    def predict(keys: set[Key]) -> dict[Key, float]:
        asked.update(keys)
        return dict.fromkeys(keys, 3.0)

    rows = np.array([[0, 1] * 3, [1] * 6, [2, 0, 1, 2, 0, 1], [1, 0, 2, 1, 1, 0]], np.uint32)
    seen = Windows(TABLE, rows, np.array([50, 40, 30, 20], np.uint64))
    found = shares(seen, np.array([0, 1, 2, 3, -1]), KEYS, ALONE, predict)
    # A loop of one block is what the model tells anyway; without a loop, the last five.
    assert asked == {(b"ab", b""), (b"cab", b""), (b"acbba", b"")}
    assert found[1] == pytest.approx((50 * 3 / 6 + 40 * 1 + 30 * 3 / 7) / 120)
