# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.cost.evaluator import EVALUATORS, Context
from compiler_opt_perf.cost.regalloc_score import ScoreError, regalloc_scores
from compiler_opt_perf.traces.block_table import BlockTable
from compiler_opt_perf.traces.trace_file import (
    Description,
    write_blocks,
    write_end,
    write_start,
)

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
    ("content", "message"),
    [
        (
            REMARK.replace("hot", "h\N{LATIN SMALL LETTER O WITH DIAERESIS}t").encode("latin-1"),
            r"byte \d+ is not UTF-8",
        ),
        (REMARK.replace("12.5", "twelve").encode(), "'twelve' is no score"),
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


def test_calls_are_those_of_the_trace_that_is_there_now(tmp_path: Path) -> None:
    (tmp_path / "a.opt.yaml").write_text(REMARK)
    place, size, zero = np.array([16], np.uint64), np.array([1], np.uint32), np.zeros(1, np.uint32)
    table = BlockTable(place, size, zero, zero, place, ("hot",))
    path = tmp_path / "run.bbtrace"
    for calls in (3, 5000):
        with path.open("wb") as stream:
            write_start(stream, Description("p", "ab", ("p",), "test", False), table)
            write_blocks(stream, [np.zeros(calls, np.uint32)], number=0, ends=True)
        write_end(path)
        cost = EVALUATORS["regalloc-score-calls"].cost([tmp_path / "a.o"], Context(trace=path))
        assert cost.total == 12.5 * calls
