# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The plot of what each kind of PMU data adds."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from compiler_opt_perf.pages.ablation import write_plot


def test_a_field_for_each_column_and_a_line_for_each_arm(tmp_path: Path) -> None:
    arms = {"none": [0.0], "counts only": [-0.02, -0.03, -0.01], "shuffled": [0.01, 0.04, 0.02]}
    ends = {"none": None, "counts only": [-0.05, 0.01], "shuffled": None}
    column = {"programs": ["lua", "tcc"], "changes": arms, "interval": ends}
    results = {
        "inlining, instructions": {"the shipped rule": column, "time": column},
        "callee-saved registers, count": {"regalloc-score": {**column, "programs": ["lua"]}},
    }
    path = tmp_path / "plot.svg"
    write_plot(path, results)
    first = path.read_bytes()
    text = first.decode()
    ElementTree.fromstring(text)
    titles = ("inlining, instructions,", "callee-saved registers, count,")
    for part in (*titles, "by time; programs: 2", "by regalloc-score; programs: 1", *arms):
        assert part in text
    write_plot(path, results)
    assert path.read_bytes() == first
    known = {**ends, "shuffled": [0.0, 0.1]}
    write_plot(path, {"inlining, instructions": {"time": {**column, "interval": known}}})
    assert path.read_bytes() != first
