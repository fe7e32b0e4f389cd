# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import numpy as np
import pytest

from benchmarks.results import Cell
from benchmarks.size_labels import PROBLEM, Floats, Labelled, kept_unseen
from benchmarks.size_settings import tables
from compiler_opt_perf.policy.testing import random_inputs

_PROGRAMS = ("one", "two", "three")


def _labelled(seed: int, sign: float) -> Labelled:
    """Labels of which those of a large caller pay, or the others."""
    inputs = random_inputs(PROBLEM, 360, seed)
    large = inputs["caller_basic_block_count"]
    advantage: Floats = np.where(large > np.median(large), 40.0 * sign, -40.0 * sign)
    return Labelled(_PROGRAMS, inputs, advantage, np.repeat(np.arange(3), 120))


def test_labels_of_another_kind_of_build_may_mislead() -> None:
    alike, other = _labelled(1, 1), _labelled(2, -1)
    kept, labels = tables({"a": alike, "b": other})
    by = {str(row[0]): [_number(one) for one in row[1:]] for row in kept.rows}
    # Mean, least and most, by what judges.
    assert by["a"][0] > 80 and by["b"][3] > 80
    assert by["a"][3] < 0 and by["b"][0] < 0
    assert by["a"][1] <= by["a"][0] <= by["a"][2]
    could = alike.advantage[alike.advantage > 0]
    assert labels.rows[0] == ["a", 360, len(could), could.sum()]


def test_trees_do_not_learn_of_the_program_that_judges_them() -> None:
    learnt, judged = _labelled(1, 1), _labelled(2, 1)
    # Of the last program, labels that would teach the opposite of what the others do.
    wrong = np.where(learnt.groups == 2, -1, 1) * learnt.advantage
    misled = Labelled(_PROGRAMS, learnt.inputs, wrong, learnt.groups)
    last = Labelled(
        _PROGRAMS, judged.inputs, np.where(judged.groups == 2, judged.advantage, 0), judged.groups
    )
    assert kept_unseen(misled, [last]) == pytest.approx(kept_unseen(learnt, [last]))


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return cell
