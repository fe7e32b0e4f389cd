# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from dataclasses import replace

import pytest

from compiler_opt_perf.compare.comparison_tables import describe
from compiler_opt_perf.compare.testing import EVICT, INLINE, ODD_NAMES


def test_tables_show_costs_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    print(describe(INLINE))
    shown = capsys.readouterr().out
    for text in ("-10.00%", "80.0%", "10.0%", "+4.88% [+4.88, +4.88]", "negative is better"):
        assert text in shown
    assert "Compile time: processor time, 3 pairs a module, in random order (seed 1); " in shown
    assert "Left out: 1 modules without code, of the size (zstd/empty)" in shown
    assert "Release, development and interactive mode took the same decisions" in shown
    print(describe(EVICT))
    shown = capsys.readouterr().out
    for text in ("-25.00%", "75.0%", "+1.00%", "(z: [g])", "each function counts once"):
        assert text in shown
    assert "pairs are too few for an interval" in shown
    assert "modes were not compared" in shown and "same decisions" not in shown


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_not_markup(name: str) -> None:
    comparison = replace(INLINE, modules=(replace(INLINE.modules[0], name=name),))
    assert name in describe(comparison)
