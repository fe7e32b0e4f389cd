# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import random
import shlex
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.binary.address_map import ANALYSIS_FLAGS
from compiler_opt_perf.binary.elf import PROFILING_FLAGS, BinaryError
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.trace.conftest import Build
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.statistics import block_counts
from compiler_opt_perf.trace.synthesis import Flow, synthesise
from compiler_opt_perf.trace.trace_file import Trace
from compiler_opt_perf.trace.windows import Windows, overlap

pytestmark = pytest.mark.compiler

ARGUMENTS = ["fork", "2000"]


@pytest.fixture(scope="module")
def profile(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """Of an ordinary build."""
    profiled = build(*shlex.split(PROFILING_FLAGS))
    path = tmp_path_factory.mktemp("profile") / "program.pmu.json"
    collect(profiled, ARGUMENTS, path)
    return Profile.load(path)


@pytest.fixture(scope="module")
def candidate(build: Build) -> Path:
    """A build of other code."""
    flags = [*shlex.split(PROFILING_FLAGS), *shlex.split(ANALYSIS_FLAGS)]
    return build(*flags, "-O1", "-falign-loops=1", map_flag="")


@pytest.fixture(scope="module")
def real(candidate: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """What the candidate really does."""
    return record(candidate, ARGUMENTS, tmp_path_factory.mktemp("real") / "real.bbtrace")


def test_the_path_is_like_the_real_one(
    candidate: Path, profile: Profile, real: Trace, tmp_path: Path
) -> None:
    drawn = synthesise(candidate, profile, tmp_path / "drawn.bbtrace", blocks=50_000, seed=3)
    assert drawn.description.fragments
    assert drawn.total >= 50_000
    for length, least in ((1, 0.9), (4, 0.8)):
        shared = overlap(Windows.count(real, length), Windows.count(drawn, length))
        assert least < shared < 1
    # Each step of the path is one that the program takes.
    steps = {tuple(row) for row in Windows.count(real, 2).blocks.tolist()}
    drawn_steps = Windows.count(drawn, 2)
    whole = np.all(drawn_steps.blocks != len(drawn.table), axis=1)
    possible = [tuple(row) in steps for row in drawn_steps.blocks[whole].tolist()]
    assert np.average(possible, weights=drawn_steps.counts[whole]) > 0.95


def test_counts_are_the_profile_s(candidate: Path, profile: Profile, real: Trace) -> None:
    flow = Flow.read(candidate, profile)
    counts = block_counts(real)
    hottest = np.argsort(counts)[-4:]
    for number in hottest.tolist():
        assert flow.counts[number] == pytest.approx(counts[number], rel=0.2)


def test_the_seed_decides(candidate: Path, profile: Profile, tmp_path: Path) -> None:
    def draw(seed: int) -> list[int]:
        path = tmp_path / f"{seed}.bbtrace"
        trace = synthesise(candidate, profile, path, blocks=3000, seed=seed)
        return [n for piece in trace.pieces(trace.streams[0]) for n in piece.tolist()]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_overlap_of_known_windows(trace: Trace, real: Trace) -> None:
    same = Windows.count(trace, 3)
    assert overlap(same, same) == pytest.approx(1)
    gap = len(trace.table)

    def windows(*rows: tuple[list[int], int]) -> Windows:
        blocks = np.array([row for row, _ in rows], np.uint32)
        return Windows(trace.table, blocks, np.array([n for _, n in rows], np.uint64))

    first = windows(([1, 2], 3), ([2, 3], 1), ([gap, 1], 100))
    second = windows(([1, 2], 1), ([3, 3], 1))
    # 3/4 and 1/2 of the whole windows are 1, 2.
    assert overlap(first, second) == pytest.approx(0.5)
    with pytest.raises(TraceError, match="no whole windows"):
        overlap(first, windows(([gap, 1], 5)))
    with pytest.raises(TraceError, match="of different lengths"):
        overlap(first, same)


def test_a_block_of_thousands_of_calls(tmp_path: Path) -> None:
    """More than 4096 of them: the path comes back to the block that called, wherever in it."""
    source, binary = tmp_path / "calls.c", tmp_path / "calls"
    calls = 5000 * "  leaf();\n"
    source.write_text(
        '__attribute__((noinline)) void leaf(void) { __asm__ volatile(""); }\n'
        f"__attribute__((noinline)) void many(void) {{\n{calls}}}\n"
        "int main(void) { many(); return 0; }\n"
    )
    flags = [*shlex.split(PROFILING_FLAGS), *shlex.split(ANALYSIS_FLAGS)]
    run_command([stock_tool("clang"), "-O2", "-Wl,--build-id", *flags, source, "-o", binary])
    collect(binary, [], tmp_path / "calls.pmu.json")
    flow = Flow.read(binary, Profile.load(tmp_path / "calls.pmu.json"))
    numbers = {flow.table.describe(number): number for number in range(len(flow.table))}
    leaf = numbers["leaf.0"]
    # The last one is a jump.
    assert flow.calls[numbers["many.0"]] == 4999 * [leaf]
    generator = random.Random(1)
    after = [flow.fragment(generator, leaf, 2)[1] for _ in range(500)]
    # All but the last two calls are followed by another one.
    assert after.count(leaf) > 490


def test_without_what_it_needs(
    build: Build, program: Path, profile: Profile, tmp_path: Path
) -> None:
    output = tmp_path / "t.bbtrace"
    with pytest.raises(BinaryError, match=r"does not say which blocks follow .* compile it with"):
        synthesise(program, profile, output, blocks=10, seed=1)
    with pytest.raises(BinaryError, match="none of its .* has a source location"):
        synthesise(build(*shlex.split(ANALYSIS_FLAGS)), profile, output, blocks=10, seed=1)
    with pytest.raises(TraceError, match="must end with .bbtrace"):
        synthesise(program, profile, tmp_path / "t", blocks=10, seed=1)
    assert not output.exists()
