# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import itertools
import random
from pathlib import Path

import pytest

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.rounds import LEAST_ROUNDS, layout_flags, paired_change, round_order


def test_the_interval_holds_the_true_change_as_often_as_it_says() -> None:
    generator = random.Random(1)
    held = 0
    for _ in range(1000):
        base = [generator.uniform(1, 3) for _ in range(15)]
        # Noise that is not normal: some rounds are far slower.
        times = [one * 1.1 * generator.choice((0.99, 1.01, 0.98, 1.02, 0.5, 2)) for one in base]
        change = paired_change(times, base)
        assert change.low <= change.value <= change.high
        held += change.low <= 0.1 <= change.high
    assert 0.95 <= held / 1000 < 1


def test_with_the_fewest_rounds_the_interval_is_all_of_them() -> None:
    change = paired_change([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0] * LEAST_ROUNDS)
    assert (change.value, change.low, change.high) == (2.5, 0.0, 5.0)
    with pytest.raises(ValueError, match="5 rounds; expected 6"):
        paired_change([1.0] * 5, [1.0] * 5)


def test_rounds_are_in_random_order_and_the_same_again() -> None:
    orders = [round_order(number, 4) for number in range(50)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert {order[0] for order in orders} == {0, 1, 2, 3}
    assert orders == [round_order(number, 4) for number in range(50)]


def test_the_first_layout_is_the_programs_own() -> None:
    assert not layout_flags(0)
    assert layout_flags(3) != layout_flags(4)


def test_layouts_reorder_functions_that_a_profile_orders(tmp_path: Path) -> None:
    names = [f"function_{number}" for number in range(8)]
    lines = [
        f'.section .text.{name},"ax"\n.globl {name}\n.type {name},@function\n{name}: ret'
        for name in names
    ]
    # What clang writes of each pair of functions that call each other often.
    lines += [f".cg_profile {one}, {other}, 100" for one, other in itertools.pairwise(names)]
    source = tmp_path / "functions.s"
    source.write_text("\n".join([*lines, ""]))

    def order(layout: int) -> list[str]:
        library = tmp_path / f"{layout}.so"
        flags = ["-fuse-ld=lld", "-nostdlib", "-shared", *layout_flags(layout)]
        run_command([stock_tool("clang"), *flags, source, "-o", library], timeout_s=60)
        symbols = run_command(
            [stock_tool("llvm-nm"), "--dynamic", "--numeric-sort", library]
        ).stdout
        return [line.split()[-1] for line in symbols.splitlines() if line.split()[-1] in names]

    orders = [order(layout) for layout in range(4)]
    assert orders[0] == names
    assert len({tuple(one) for one in orders}) == len(orders)
