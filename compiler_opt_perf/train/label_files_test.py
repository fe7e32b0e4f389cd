# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Labels as rows, and by whom they are judged."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from compiler_opt_perf.policy.problem import PROBLEMS
from compiler_opt_perf.policy.testing import random_inputs
from compiler_opt_perf.train import cost_sensitive
from compiler_opt_perf.train.cost_sensitive import TreeSettings
from compiler_opt_perf.train.label_files import Labels, LabelsError, groups_of, labelled_rows

PROBLEM = PROBLEMS["inline-size"]


@pytest.mark.parametrize(
    ("modules", "groups"),
    [
        (["a/x", "a/x", "b/x", "a/y"], [0, 0, 1, 0]),
        (["b/x", "a/y"], [1, 0]),
        # Of one program each module, or nothing would be unseen.
        (["a/y", "a/x", "a/y"], [1, 0, 1]),
        (["a/x", "a/x"], [0, 0]),
        (["x", "y"], [0, 1]),
    ],
)
def test_programs_are_judged_by_others_and_modules_where_there_is_one(
    modules: list[str], groups: list[int]
) -> None:
    assert groups_of(modules).tolist() == groups


def _labels(modules: Sequence[str], rows: int, *, with_pmu: bool = False) -> list[Labels]:
    """To inline what the compiler does not saves where the estimate is low, and costs elsewhere."""
    labels = []
    for number, module in enumerate(modules):
        inputs = random_inputs(PROBLEM, rows, seed=number)
        inputs |= {name: inputs[name] % 2 for name in ("callee_is_comdat", "callee_is_mangled")}
        default = inputs[PROBLEM.default_feature]
        names = [feature.name for feature in PROBLEM.inputs(with_pmu)]
        kind = [(name, "<i8", (1,)) for name in (*names, PROBLEM.decision)]
        observations = np.zeros(rows, kind)
        for name in names:
            observations[name][:, 0] = inputs[name]
        observations[PROBLEM.decision][:, 0] = default
        difference = np.where(inputs["cost_estimate"] < -20, -50.0, 1.0)
        keys = tuple(map(str, range(rows)))
        labels.append(Labels(module, keys, observations, observations, difference, 1000.0, 1))
    return labels


@pytest.mark.parametrize("modules", [("a/x", "a/y"), ("a/x", "b/x"), ("a/x", "a/y", "a/z")])
def test_labels_of_one_program_teach_as_those_of_several_do(modules: Sequence[str]) -> None:
    settings = TreeSettings(2, 50, 8, 20, 0.1, largest=10.0, least_share=0.2)
    rows = labelled_rows(PROBLEM, _labels(modules, 1000))
    assert len(cost_sensitive.Trees.fit(*rows, settings, seed=1).kept) == 8


def test_modules_without_a_profile_have_pmu_features_as_missing() -> None:
    labels = [*_labels(["a/x"], 20, with_pmu=True), *_labels(["b/x"], 30)]
    inputs, _, groups = labelled_rows(PROBLEM, labels, with_pmu=True)
    assert list(inputs) == [feature.name for feature in PROBLEM.inputs(with_pmu=True)]
    calls, known = inputs["pmu_callsite_executions_log2"], labels[0].observations
    assert (calls[groups == 0] == known["pmu_callsite_executions_log2"][:, 0]).all()
    assert (calls[groups == 1] == -1).all()
    # As the compiler has it when it is given no profile.
    assert (inputs["pmu_coverage"][groups == 1] == 0).all()
    alone, *_ = labelled_rows(PROBLEM, labels)
    assert list(alone) == [feature.name for feature in PROBLEM.inputs(with_pmu=False)]


def test_labels_of_another_version_are_refused() -> None:
    (labels,) = _labels(["a/x"], 20)
    known = [name for name in labels.observations.dtype.names or () if name != "cost_estimate"]
    other = dataclasses.replace(labels, observations=labels.observations[known])
    with pytest.raises(LabelsError, match="without the feature cost_estimate, of another version"):
        labelled_rows(PROBLEM, [other])
