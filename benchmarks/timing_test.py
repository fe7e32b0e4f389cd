# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.common import BenchmarkError
from benchmarks.timing import Stopwatch, boundaries, run_rounds
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.llvm import stock_tool

_MOMENTS = """
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned Sink;
int main(int argc, char **argv) {
  char Bytes[10];
  for (int I = 0; I < atoi(argv[1]); ++I)
    read(0, Bytes, sizeof Bytes);
  for (int I = 0; I < atoi(argv[2]); ++I)
    clock();
  for (int I = 0; I < atoi(argv[3]); ++I) {
    void *volatile Block = I % 2 ? malloc(10) : calloc(2, 5);
    Block = realloc(Block, 20);
    free(Block);
  }
  for (int I = 0; I < 1000000; ++I)
    Sink += I;
}
"""


@pytest.mark.compiler
def test_a_stopwatch_stops_at_reads_clocks_and_allocations(tmp_path: Path) -> None:
    processor = max(os.sched_getaffinity(0))
    source, program = tmp_path / "moments.c", tmp_path / "moments"
    source.write_text(_MOMENTS)
    run_command([stock_tool("clang"), "-O1", source, "-o", program])
    with Stopwatch() as stopwatch:

        def moments(reads: int, clocks: int, allocations: int) -> npt.NDArray[np.float64]:
            return stopwatch.run(
                [program, *map(str, (reads, clocks, allocations))], processor
            ).times

        without = len(moments(0, 0, 0))
        assert len(moments(5, 0, 0)) == without + 5
        assert len(moments(0, 7, 0)) == without + 7
        # One in 64 is noted; malloc and calloc count alike, for the one may have become the other.
        assert len(moments(0, 0, 640)) == without + 20
        times = moments(2, 3, 64)
        with pytest.raises(CommandError, match="false"):
            stopwatch.run(["false"], processor)
    assert (np.diff(times) >= 0).all() and times[0] >= 0


def test_boundaries_are_far_enough_apart() -> None:
    times = np.array([1.0, 1.4, 1.9, 2.1, 2.15, 3.3, 3.35, 3.4])
    assert boundaries(times, 1.0).tolist() == [0, 3, 7]
    assert boundaries(times, 0.04).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert boundaries(times, 9.0).tolist() == [0, 7]


@pytest.mark.compiler
def test_a_run_whose_time_goes_back_is_repeated_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = iter([[0.0, 2.0, 1.0], [0.0, 1.0, 1.0]])
    with Stopwatch() as stopwatch:
        monkeypatch.setattr(stopwatch, "_noted", lambda *_: np.array(next(runs)))
        assert stopwatch.run(["p"], 0).times.tolist() == [0.0, 1.0, 1.0]
        monkeypatch.setattr(stopwatch, "_noted", lambda *_: np.array([1.0, 0.0]))
        with pytest.raises(BenchmarkError, match="p: its processor time goes back, in 20 runs"):
            stopwatch.run(["p"], 0)


@pytest.mark.compiler
def test_rounds_tell_which_variant_is_faster(tmp_path: Path) -> None:
    source = tmp_path / "moments.c"
    source.write_text(_MOMENTS)
    binaries: dict[str, list[Path]] = {}
    # Of more than a tick of the kernel, by which it tells its own time.
    for name, scale in (("slow", 90_000_000), ("fast", 30_000_000)):
        binaries[name] = [tmp_path / f"{name}-{layout}" for layout in range(3)]
        source.write_text(_MOMENTS.replace("1000000", str(scale)))
        for binary in binaries[name]:
            run_command([stock_tool("clang"), "-O1", source, "-o", binary])
    values = iter(range(9))

    def rounds(number: int, arguments: list[str]) -> list[list[list[float]]]:
        measured = run_rounds(
            tmp_path / "rounds.json",
            binaries,
            arguments,
            {},
            number,
            max(os.sched_getaffinity(0)),
            label="test",
            beside=lambda: float(next(values)),
        )
        assert measured.beside == list(range(number))
        value, low, high = measured.changes({"x": ("fast", "slow")})["x"]
        assert low <= value <= high and value == pytest.approx(-67, abs=10)
        assert measured.run_s > 0 and measured.whole_s > measured.system_s >= 0
        return measured.seconds

    arguments = ["0", "0", "0"]
    first = rounds(3, arguments)
    # Rounds of earlier calls count.
    assert rounds(4, arguments)[:3] == first


@pytest.mark.compiler
def test_runs_with_other_moments_are_one_part(tmp_path: Path) -> None:
    source, binaries = tmp_path / "allocating.c", {}
    for name, allocations in (("few", 640), ("many", 64_000)):
        source.write_text(
            "#include <stdlib.h>\nchar *volatile kept;\n"
            f"int main(void) {{ for (int i = 0; i < {allocations}; ++i) kept = malloc(9); }}\n"
        )
        binaries[name] = [tmp_path / name]
        run_command([stock_tool("clang"), "-O1", source, "-o", tmp_path / name])
    measured = run_rounds(tmp_path / "r.json", binaries, [], {}, 2, 0, label="test")
    assert measured.moments == 0
    assert np.shape(measured.seconds) == (2, 2, 1)
