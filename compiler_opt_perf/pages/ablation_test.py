# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The plot of what each kind of PMU data adds."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from compiler_opt_perf.pages.ablation import write_plot


def test_a_field_for_each_column_and_a_line_for_each_arm(tmp_path: Path) -> None:
    arms = {"none": [0.0], "counts only": [-0.02, -0.03, -0.01], "shuffled": [0.01, 0.04, 0.02]}
    results = {
        "inlining, instructions": {"programs": ["lua", "tcc"], "changes": arms},
        "callee-saved registers, count": {"programs": ["lua"], "changes": arms},
    }
    path = tmp_path / "plot.svg"
    write_plot(path, results)
    first = path.read_bytes()
    text = first.decode()
    ElementTree.fromstring(text)
    for part in ("inlining, instructions; programs: 2", "registers, count; programs: 1", *arms):
        assert part in text
    write_plot(path, results)
    assert path.read_bytes() == first
    less = {name: [*changes[:1]] for name, changes in arms.items()}
    write_plot(path, {"inlining, instructions": {"programs": ["lua"], "changes": less}})
    assert path.read_bytes() != first
