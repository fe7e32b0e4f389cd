# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.trace.conftest import Build
from compiler_opt_perf.trace.edit import cut, merge
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.native import Numbers
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.statistics import block_counts
from compiler_opt_perf.trace.trace_file import Trace

pytestmark = pytest.mark.compiler


def numbers(trace: Trace, stream: int) -> Numbers:
    return np.concatenate(list(trace.pieces(trace.streams[stream])))


def test_merged_runs_keep_their_streams(trace: Trace, program: Path, tmp_path: Path) -> None:
    other = record(program, ["threads", "1000"], tmp_path / "other.bbtrace")
    merged = merge([trace, other, trace], tmp_path / "merged.bbtrace")
    assert merged.complete
    assert len(merged.streams) == 1 + 5 + 1
    assert merged.total == 2 * trace.total + other.total
    assert np.array_equal(block_counts(merged), 2 * block_counts(trace) + block_counts(other))
    for number in (0, 6):
        assert np.array_equal(numbers(merged, number), numbers(trace, 0))
    assert [s.tid for s in merged.streams.values()][1:6] == [s.tid for s in other.streams.values()]


def test_other_builds_are_not_merged(trace: Trace, build: Build, tmp_path: Path) -> None:
    other = record(build("-O1"), ["turn", "10"], tmp_path / "other.bbtrace")
    with pytest.raises(TraceError, match="traces of different builds cannot be merged"):
        merge([trace, other], tmp_path / "merged.bbtrace")
    assert not (tmp_path / "merged.bbtrace").exists()


@pytest.mark.parametrize(
    ("first", "number"), [(0, 10), (65530, 10), (65536, 65536), (100, None), (70000, 10**9)]
)
def test_a_part(trace: Trace, tmp_path: Path, first: int, number: int | None) -> None:
    part = cut(trace, tmp_path / "part.bbtrace", first=first, number=number)
    end = None if number is None else first + number
    assert np.array_equal(numbers(part, 0), numbers(trace, 0)[first:end])
    assert part.description == trace.description


def test_some_streams(program: Path, tmp_path: Path) -> None:
    trace = record(program, ["threads", "1000"], tmp_path / "t.bbtrace")
    part = cut(trace, tmp_path / "part.bbtrace", streams=[3, 1])
    assert list(part.streams) == [1, 3]
    assert np.array_equal(numbers(part, 3), numbers(trace, 3))
    with pytest.raises(TraceError, match="has no stream 7; there are 0, 1, 2, 3, 4"):
        cut(trace, tmp_path / "none.bbtrace", streams=[7])
    with pytest.raises(TraceError, match="nothing is left; its longest stream has"):
        cut(trace, tmp_path / "none.bbtrace", first=10**9)
    with pytest.raises(TraceError, match="must end with .bbtrace"):
        cut(trace, tmp_path / "none")
    assert not (tmp_path / "none.bbtrace").exists()
