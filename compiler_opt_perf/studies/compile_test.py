# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from compiler_opt_perf.studies.compile import renamed


def test_functions_are_renamed_and_counts_are_not() -> None:
    text = "f:30:2\n 3: 10 a::b:6\n 4.2: g::h:20\n  1: 20\n"
    assert renamed(text, "copy_") == "copy_f:30:2\n 3: 10 a::b:6\n 4.2: copy_g::h:20\n  1: 20\n"
