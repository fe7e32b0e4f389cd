# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.compare.modes import first_difference
from compiler_opt_perf.compare.remarks import Decision, RemarksError, count_pmu, read_decisions
from compiler_opt_perf.policy.problem import PROBLEMS

INLINE = PROBLEMS["inline-size"]
REMARKS = """\
--- !Passed
Pass:            inline-ml
Name:            InliningSuccess
DebugLoc:        { File: 'a.c', Line: 7, Column: 10 }
Function:        caller
Args:
  - Callee:          callee
  - cost_estimate:   '-15'
  - ShouldInline:    'true'
  - DefaultDecision: '0'
  - PMUData:         exact
...
--- !Missed
Pass:            inline-ml
Name:            ForceStop
Function:        caller
Args:
  - String:          'module size grew too much'
...
--- !Missed
Pass:            inline-ml
Name:            IniningNotAttempted
Function:        other
Args:
  - Callee:          callee
  - ShouldInline:    'false'
  - DefaultDecision: '0'
...
"""


def test_decisions_in_order_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "remarks.yaml"
    path.write_text(REMARKS)
    decisions = read_decisions(path, INLINE)
    assert decisions == [
        Decision("caller", "callee", 1, 0, "exact"),
        Decision("other", "callee", 0, 0, "missing"),
    ]
    assert count_pmu(decisions) == {"exact": 1, "missing": 1}
    assert read_decisions(path, PROBLEMS["regalloc-evict"]) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("--- !Missed", "--- {", "not a remarks file"),
        ("Pass: ", "Pace: ", "not a remarks file: 'Pass'"),
        ("  - ShouldInline:    'true'\n", "", "remark 0 .InliningSuccess.: KeyError.*ShouldInline"),
        ("'0'", "'none'", "remark 0 .InliningSuccess.: ValueError"),
        ("exact", "guessed", "PMUData is 'guessed'"),
    ],
)
def test_damage_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "remarks.yaml"
    assert old in REMARKS
    path.write_text(REMARKS.replace(old, new, 1))
    with pytest.raises(RemarksError, match=rf"remarks.yaml: .*{message}"):
        read_decisions(path, INLINE)


def test_first_difference_says_where() -> None:
    one = Decision("f", "g", 1, 0, "exact")
    other = Decision("f", "g", 0, 0, "exact")
    assert first_difference([one], [one], "other") is None
    assert "decision 1: release" in str(first_difference([one, one], [one, other], "other"))
    assert "2 decisions in release mode, 1 in other" in str(
        first_difference([one, one], [one], "other")
    )
