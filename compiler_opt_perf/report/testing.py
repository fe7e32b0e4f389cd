# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons for tests."""

from compiler_opt_perf.report.comparison import Comparison, FunctionScores, ModuleComparison

#: Of the compiler.
ALL_MODES = ("release", "development", "interactive")
INLINE = Comparison(
    "inline-size",
    "-Oz",
    ALL_MODES,
    1,
    "processor time, 3 pairs a module",
    (
        ModuleComparison("zstd/a<b>", 1000, 900, (), 50, 40, 20, 5, (1.0, 2, 3), (1.1, 2.2, 3.3)),
        ModuleComparison("zstd/empty", 0, 0, (), 0, 0, 0, 0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ),
)
EVICT = Comparison(
    "regalloc-evict",
    "-O2",
    ("release",),
    1,
    "instructions, counted by QEMU's user mode, 1 pair a module",
    (
        ModuleComparison(
            "z",
            10,
            10,
            (FunctionScores("f", None, 80.0, 60.0), FunctionScores("[g]", None, None, 1.0)),
            4,
            2,
            1,
            3,
            (100.0,),
            (101.0,),
        ),
    ),
)

#: That no program of text or plots may take for markup or a formula.
ODD_NAMES = (r"a$\frac{1$", r"$\frac{1$", r"a\$\frac{1$", "[red]a[/b]")
