# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.cost.evaluator import EVALUATORS, Context
from compiler_opt_perf.cost.regalloc_score import ScoreError, regalloc_scores, score_ratio
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.trace_file import TraceDescription
from compiler_opt_perf.trace.trace_writer import write_blocks, write_end, write_start

# As the patched clang writes it.
REMARK = """--- !Analysis
Pass:            regalloc-score
Name:            RegAllocScore
DebugLoc:        { File: a.c, Line: 3, Column: 0 }
Function:        hot
Args:
  - Score:           '12.5'
...
"""


def test_scores_by_function(tmp_path: Path) -> None:
    second = REMARK.replace("hot", "cold").replace("12.5", "3")
    (tmp_path / "a.opt.yaml").write_text(REMARK + second)
    assert regalloc_scores(tmp_path / "a.o") == {"hot": 12.5, "cold": 3}


@pytest.mark.parametrize(
    ("written", "name"),
    [("'it''s'", "it's"), ("'123'", "123"), (r'"a\tb\"c"', 'a\tb"c'), (r'"\xF6"', "\xf6")],
)
def test_names_are_those_that_yaml_means(written: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "a.opt.yaml").write_text(REMARK.replace("hot", written))
    assert regalloc_scores(tmp_path / "a.o") == {name: 12.5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            REMARK.replace("hot", "h\N{LATIN SMALL LETTER O WITH DIAERESIS}t").encode("latin-1"),
            r"byte \d+ is not UTF-8",
        ),
        (REMARK.replace("12.5", "twelve").encode(), "'twelve': is no name with a score"),
        (REMARK.replace("hot", '"h').encode(), "is no name with a score"),
        (REMARK.replace("Function:", "Fun:").encode(), "has other remarks than one score"),
        (REMARK.encode() * 2, "has other remarks than one score"),
        (None, "No such file.*compile a.o with the patched clang"),
    ],
)
def test_damage_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.opt.yaml").write_bytes(content)
    with pytest.raises(ScoreError, match=rf"a\.opt\.yaml: .*{message}|a\.opt\.yaml: {message}"):
        regalloc_scores(tmp_path / "a.o")


@pytest.mark.compiler
def test_calls_are_those_of_the_trace_that_is_there_now(tmp_path: Path) -> None:
    (tmp_path / "a.opt.yaml").write_text(REMARK)
    place, size, zero = np.array([16], np.uint64), np.array([1], np.uint32), np.zeros(1, np.uint32)
    table = BlockTable(place, size, zero, zero, place, ("hot",))
    path = tmp_path / "run.bbtrace"
    for calls in (3, 5000):
        with path.open("wb") as stream:
            write_start(stream, TraceDescription("p", "ab", ("p",), "test", False), table)
            write_blocks(stream, [np.zeros(calls, np.uint32)], number=0, ends=True)
        write_end(path)
        cost = EVALUATORS["regalloc-score-calls"].cost([tmp_path / "a.o"], Context(trace=path))
        assert cost.total == 12.5 * calls


def test_scores_count_by_function_not_by_their_sum() -> None:
    default = {"hot": 1e6, "small": 10.0, "other": 20.0}
    worse = {"hot": 1e6, "small": 20.0, "other": 40.0}
    # A sum would be 0.003% higher.
    assert score_ratio(default, worse, {}) == pytest.approx(4 ** (1 / 3), rel=1e-3)
    assert score_ratio(default, default, {}) == 1.0
    better = {"hot": 1e6, "small": 5.0, "other": 40.0}
    assert score_ratio(default, better, {}) == pytest.approx(1.0, rel=1e-3)


def test_scores_are_weighted_by_calls_where_there_are_any() -> None:
    default, policy = {"often": 10.0, "seldom": 10.0}, {"often": 5.0, "seldom": 20.0}
    assert score_ratio(default, policy, {"often": 3, "seldom": 1}) == pytest.approx(
        0.5**0.5, rel=1e-2
    )
    assert score_ratio(default, policy, {"seldom": 7}) == pytest.approx(2.0, rel=1e-2)
    # A module of a program that was not profiled.
    assert score_ratio(default, policy, {"elsewhere": 7}) == pytest.approx(1.0, rel=1e-3)


def test_functions_without_a_score_to_compare_are_an_error() -> None:
    assert score_ratio({"free": 0.0}, {"free": 0.0}, {}) == 1.0
    assert score_ratio({"free": 0.0}, {"free": 1.0}, {}) > 1
    with pytest.raises(ScoreError, match=r"scored functions differ from the default's \(f, g\)"):
        score_ratio({"f": 1.0, "h": 1.0}, {"g": 1.0, "h": 1.0}, {})
    with pytest.raises(ScoreError, match="no function has a score"):
        score_ratio({}, {}, {})
