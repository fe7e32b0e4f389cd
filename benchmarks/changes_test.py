# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest

from benchmarks.changes import changes_table, counted_changes, mean_change


def test_means_over_programs_have_an_interval_from_three_programs_on() -> None:
    assert mean_change([10.0, 21.0]) == pytest.approx(15.3689, abs=1e-4)
    mean = mean_change([10.0, 10.0, 21.0])
    assert isinstance(mean, tuple)
    assert mean[1] < 10 < mean[0] == pytest.approx(13.5508, abs=1e-4)
    assert mean[2] > 21


def test_changes_are_of_the_ways_that_a_program_has() -> None:
    totals = {"a": {"default": 100, "x": 90}, "b": {"default": 200, "y": 1}}
    pairs = {"x": ("x", "default"), "x on y": ("x", "y")}
    changes = counted_changes(totals, pairs)
    assert changes == {"a": {"x": pytest.approx(-10)}, "b": {}}
    facts = {"a": [100], "b": [200]}
    (table,) = changes_table("t", "", {"instructions": "integer"}, facts, changes, pairs)
    assert [column.name for column in table.columns] == ["program", "instructions", "x"]
    assert table.rows[1:] == [["b", 200, None], ["geometric mean", None, pytest.approx(-10)]]
    assert changes_table("t", "", {}, facts, {"a": {}}, pairs) == []
