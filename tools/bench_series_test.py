# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import bench_series as bench
import pytest

from compiler_opt_perf.toolchain.layout import PATCHES, ToolchainError
from compiler_opt_perf.toolchain.patches import Series


def test_tests_are_named_in_the_message() -> None:
    message = """[MLGO] Add x

lit_tests/Other/not-this.test is only mentioned.

Test: lit_tests/DevMode/{inline,library}.test, lit_tests/RegAlloc/
limit.test and lit_tests/PMUProfile/*.test.
"""
    assert bench.named_tests(message) == [
        "lit_tests/DevMode/inline.test",
        "lit_tests/DevMode/library.test",
        "lit_tests/RegAlloc/",
        "lit_tests/PMUProfile/*.test",
    ]
    assert bench.named_tests("[MLGO] Add x\n\nTest: upstream's tests") == []


def test_patches_name_tests_that_are_there() -> None:
    tests = {
        test
        for patch in Series(PATCHES).patches()
        for test in bench.find_tests(bench.named_tests(patch.read_text().partition("\n---\n")[0]))
    }
    assert "lit_tests/DevMode/library.test" in tests


def test_a_test_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ToolchainError, match="none.test: no such test"):
        bench.find_tests(["lit_tests/DevMode/none.test"])
