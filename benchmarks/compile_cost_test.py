# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from benchmarks.compile_cost import Counted, renamed, tables


def test_copies_of_functions_have_other_names() -> None:
    text = "main:5:1\n 1: 2\n 2.1: inner:3\n  1: 3\n 4: 7 called:7\n"
    renamed_text = "c_main:5:1\n 1: 2\n 2.1: c_inner:3\n  1: 3\n 4: 7 called:7\n"
    assert renamed(text, "c_") == renamed_text


def test_table_of_small_and_large_modules_and_of_those_that_stay_the_same() -> None:
    small, large = 100_000_000, 1_000_000_000
    counts = {
        "large": {"default": Counted(large, "c"), "both": Counted(large // 2, "c")},
        "small": {"default": Counted(small, "a"), "both": Counted(small * 2, "b")},
    }
    table, same_code, other_code = tables(counts)
    every, same = table.rows
    assert every == ["all", 2, pytest.approx(0), 1, 100.0, 100.0, 1, -50.0, -50.0]
    assert same == ["same", 1, -50.0, 0, None, None, 1, -50.0, -50.0]
    assert same_code.rows == [["large", 1000, -50.0]]
    assert other_code.rows == [["small", 100, 100.0]]
