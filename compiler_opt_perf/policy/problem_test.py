# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.policy.problem import PROBLEMS, Problem, for_clang


def test_options_of_each_mode() -> None:
    problem = PROBLEMS["inline-size"]
    assert problem.development_options(model=Path("m"), profile=Path("p.pmu.json")) == [
        "-enable-ml-inliner=development",
        "-mlgo-decision-features",
        "-ml-inliner-model-under-training=m",
        "-pmu-profile=p.pmu.json",
    ]
    problem = PROBLEMS["regalloc-evict"]
    assert problem.development_options(log=Path("l")) == [
        "-regalloc-enable-advisor=development",
        "-mlgo-decision-features",
        "-regalloc-training-log=l",
    ]
    assert for_clang(problem.release_options()) == [
        "-mllvm",
        "-regalloc-enable-advisor=release",
    ]


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
def test_tables_are_consistent(problem: Problem) -> None:
    names = [feature.name for feature in problem.all_features(with_pmu=True)]
    assert len(set(names)) == len(names)
    assert all(feature.may_be_missing for feature in problem.pmu_features)
    assert problem.mask is None or problem.mask in names
    assert 0 <= problem.idle_decision < problem.decisions
