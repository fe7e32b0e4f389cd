# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The plot of predicted against measured cycles."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np

from compiler_opt_perf.pages.predictions import write_plot


def test_a_field_for_each_collection(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    measured = np.exp(random.normal(1, 1, 500))
    predicted = measured * np.exp(random.normal(0, 0.2, 500))
    predicted[:3] = np.nan
    nothing = np.array([np.nan])
    points = {"lua": (predicted, measured), "rare": (nothing, np.array([1.0]))}
    path = tmp_path / "plot.svg"
    write_plot(path, "granite on znver3", points)
    first = path.read_bytes()
    text = first.decode()
    ElementTree.fromstring(text)
    for part in ("lua: 497 blocks", "rare: 0 blocks", "granite on znver3", "measured cycles"):
        assert part in text
    write_plot(path, "granite on znver3", points)
    assert path.read_bytes() == first
    write_plot(path, "granite on znver3", points, of="parts")
    assert "lua: 497 parts" in path.read_text()
