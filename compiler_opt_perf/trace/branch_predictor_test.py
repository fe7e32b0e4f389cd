# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The branch predictor on a real run, with branches of known kinds."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.leb128 import read_leb128s
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.trace import windows as module
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.trace_file import SAMPLE_ACCESSES, SAMPLE_BRANCHES, Trace
from compiler_opt_perf.trace.trace_writer import write_blocks, write_end, write_start
from compiler_opt_perf.trace.windows import (
    FORMAT,
    SAMPLE_BLOCKS,
    Windows,
    samples,
    write_windows,
)

pytestmark = pytest.mark.compiler

SOURCE = Path(__file__).parent / "testdata" / "branches.c"
TURNS = 20_000


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("branches")
    options = ("-O1", "-fno-unroll-loops", "-fbasic-block-address-map", "-Wl,--build-id")
    run_command([stock_tool("clang"), *options, SOURCE, "-o", folder / "branches"])
    return record(folder / "branches", [str(TURNS)], folder / "run.bbtrace")


def rates(windows: Windows) -> dict[str, float]:
    """By function: mispredictions a turn."""
    assert windows.branches is not None
    wrong = windows.branches[:, 1] + windows.branches[:, 3]
    by_function = np.bincount(windows.table.function, wrong.astype(float))
    return dict(zip(windows.table.names, (by_function / TURNS).tolist(), strict=True))


def test_patterns_are_learned_and_chance_is_not(branches: Trace, tmp_path: Path) -> None:
    found = rates(write_windows(branches, 4, tmp_path / "w.bbwindows"))
    assert 0.45 < found["by_chance"] < 0.55
    # The coin's fall is in the history of the others, and costs them time to learn.
    assert found["in_turn"] < 0.03
    assert found["in_rounds"] < 0.03
    assert found["to_places"] < 0.1
    assert found["itself"] < 0.1
    assert found["main"] < 0.01


def test_exits_and_calls_are_told_apart(branches: Trace) -> None:
    counts = Windows.count(branches, 1, predict=True)
    assert counts.branches is not None
    table = counts.table
    executed = np.zeros(len(table), np.int64)
    executed[counts.blocks[:, 0]] = counts.counts
    names = np.array(table.names)[table.function]
    exits, _, calls, wrong_calls = counts.branches.astype(np.int64).T
    # Every function is entered by a call, but for the first of all.
    entries = table.address == table.entry[table.function]
    assert calls.sum() == executed[entries].sum() - 1 > 5 * TURNS
    assert wrong_calls.sum() < 10
    # Each block of a loop without calls has as many exits as executions.
    rounds = names == "in_rounds"
    looping = rounds & (executed > TURNS)
    assert looping.any() and (exits[looping] == executed[looping]).all()


def test_file_keeps_them(branches: Trace, tmp_path: Path) -> None:
    written = write_windows(branches, 4, tmp_path / "w.bbwindows")
    assert written.branches is not None
    loaded = Windows.load(tmp_path / "w.bbwindows").branches
    assert loaded is not None
    np.testing.assert_array_equal(loaded, written.branches)


def test_each_mispredicted_execution_is_noted(branches: Trace, tmp_path: Path) -> None:
    written = write_windows(branches, 1, tmp_path / "w.bbwindows")
    assert written.simulated is not None and written.branches is not None
    (stream,) = branches.streams.values()
    numbers = np.concatenate(list(branches.pieces(stream)))
    codes = written.simulated.mispredicted
    for is_call, column in ((0, 1), (1, 3)):
        of_kind = codes[codes % np.uint64(2) == is_call] // np.uint64(2)
        counts = np.bincount(numbers[of_kind.astype(np.int64)], minlength=len(branches.table))
        assert counts.tolist() == written.branches[:, column].tolist()
    # The file has those of each sample.
    loaded = Trace.load(tmp_path / "w.bbwindows", format_=FORMAT)
    records = [record for record in loaded.records if record.kind == SAMPLE_BRANCHES]
    places = [begin for begin, _, _ in samples(branches)]
    assert len(records) == len(places)
    for place, found in zip(places, records, strict=True):
        expected = codes[(codes >= 2 * place) & (codes < 2 * (place + SAMPLE_BLOCKS))]
        differences = read_leb128s(loaded.content(found))
        assert np.array_equal(np.cumsum(differences), expected - np.uint64(2 * place))
        assert found.count == len(expected)
    assert sum(record.count for record in records) > 100


def test_long_runs_are_predicted_in_part(
    branches: Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "PREDICTED_BLOCKS", branches.total // 4)
    monkeypatch.setattr(module, "SAMPLES", 3)
    branches_ = Windows.count(branches, 1, predict=True).branches
    assert branches_ is not None
    share = branches_[:, 0].sum() / Windows.count(branches, 1).counts.sum()
    assert 0.05 < share < 0.6
    # That part has the samples.
    write_windows(branches, 1, tmp_path / "w.bbwindows")
    kinds = [record.kind for record in Trace.load(tmp_path / "w.bbwindows", format_=FORMAT).records]
    assert kinds.count(SAMPLE_BRANCHES) == kinds.count(SAMPLE_ACCESSES) >= 3


def test_not_of_fragments(branches: Trace, tmp_path: Path) -> None:
    path = tmp_path / "pieces.bbtrace"
    with path.open("wb") as out:
        description = dataclasses.replace(branches.description, fragments=True)
        write_start(out, description, branches.table)
        write_blocks(out, branches.pieces(branches.streams[0]), number=0, ends=True)
    write_end(path)
    windows = write_windows(Trace.load(path), 2, tmp_path / "w.bbwindows")
    assert windows.branches is None
    assert Windows.load(tmp_path / "w.bbwindows").branches is None
