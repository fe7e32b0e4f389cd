# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.binary.elf import BinaryError, hide_debug_info
from compiler_opt_perf.profile.callgrind import CacheGeometry, simulate
from compiler_opt_perf.profile.callgrind_dump import read_dumps
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.workload import Run
from compiler_opt_perf.trace.conftest import Build
from compiler_opt_perf.trace.errors import TraceError
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.statistics import block_counts
from compiler_opt_perf.trace.trace_file import Trace

pytestmark = pytest.mark.compiler


def executions(trace: Trace, function: str) -> int:
    """How often a function was entered."""
    (number,) = (i for i, name in enumerate(trace.table.names) if name == function)
    first = np.flatnonzero(
        (trace.table.function == number) & (trace.table.address == trace.table.entry[number])
    )
    return int(block_counts(trace)[first[0]])


def simulated(binary: Path, arguments: Sequence[str], trace: Trace, folder: Path) -> np.ndarray:  # type: ignore[type-arg]
    """How often callgrind counts the first instruction of each block."""
    copy = folder / binary.name
    hide_debug_info(binary, copy)
    dumps = simulate(Run(copy, arguments, timeout_s=120), folder, CacheGeometry())
    counts = read_dumps(dumps, copy).counts
    return np.array([counts.get(address, [0])[0] for address in trace.table.address.tolist()])


@pytest.mark.parametrize("flags", [(), ("-no-pie",), ("-static",), ("-static-pie",)], ids=str)
def test_counts_are_those_of_the_simulator(
    build: Build, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    binary = build(*flags)
    # Blocks that begin with a repeated string instruction are among them.
    arguments = ["clear", "300"]
    trace = record(binary, arguments, tmp_path / "t.bbtrace")
    folder = tmp_path / "simulated"
    folder.mkdir()
    expected = simulated(binary, arguments, trace, folder)
    has_code = trace.table.size > 0
    counts = block_counts(trace)
    assert np.array_equal(counts[has_code], expected[has_code])
    assert executions(trace, "clear") == executions(trace, "fill") == 300


def test_each_thread_has_a_stream(program: Path, tmp_path: Path) -> None:
    trace = record(program, ["threads", "50000"], tmp_path / "t.bbtrace")
    lengths = sorted(len(stream) for stream in trace.streams.values())
    assert len(lengths) == 5
    assert lengths[0] < 100  # main waits
    for i, length in enumerate(lengths[1:], 1):
        assert 2 * 50_000 * i <= length <= 3 * 50_000 * i + 10
    assert all(stream.ended for stream in trace.streams.values())
    assert len({stream.tid for stream in trace.streams.values()}) == 5
    assert len({stream.pid for stream in trace.streams.values()}) == 1
    assert executions(trace, "turn") == 4


def test_a_forked_process_has_its_own_streams(program: Path, tmp_path: Path) -> None:
    trace = record(program, ["fork", "50000"], tmp_path / "t.bbtrace")
    assert executions(trace, "turn") == 3
    parent, child = trace.streams.values()
    assert parent.pid != child.pid
    # Both turn 100,000 times: the child has none of its parent's blocks.
    assert abs(len(parent) - len(child)) < 1000
    assert parent.ended
    assert child.ended


def test_a_library_is_traced_in_a_program_that_loads_it(
    build: Build, program: Path, tmp_path: Path
) -> None:
    library = build("-shared", "-fPIC", name="libturn.so")
    arguments = ["load", "1000", str(library)]
    trace = record(library, arguments, tmp_path / "t.bbtrace", program=program)
    assert executions(trace, "turn") == 1
    assert trace.description.program == "libturn.so"
    loader = record(program, arguments, tmp_path / "loader.bbtrace")
    assert executions(loader, "main") == 1
    assert executions(loader, "turn") == 0


def test_the_same_run_gives_the_same_trace(program: Path, trace: Trace, tmp_path: Path) -> None:
    again = record(program, ["turn", "60000"], tmp_path / "t.bbtrace")
    assert [s.records[0].count for s in again.streams.values()] == [65536]
    for one, other in zip(trace.streams.values(), again.streams.values(), strict=True):
        pieces = list(trace.pieces(one)), list(again.pieces(other))
        assert np.array_equal(np.concatenate(pieces[0]), np.concatenate(pieces[1]))


def test_an_aborted_run_keeps_its_trace(program: Path, tmp_path: Path) -> None:
    trace = record(program, ["abort", "50000"], tmp_path / "t.bbtrace")
    (stream,) = trace.streams.values()
    assert len(stream) > 100_000
    assert not stream.ended
    assert trace.complete


def test_a_run_that_hangs_keeps_what_was_written(program: Path, tmp_path: Path) -> None:
    trace = record(program, ["hang"], tmp_path / "t.bbtrace", timeout_s=3)
    (stream,) = trace.streams.values()
    assert not stream.ended
    assert len(stream) % 65536 == 0
    assert executions(trace, "main") == 1


def test_a_crash_before_the_first_record_is_explained(program: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        record(program, ["crash", "10"], tmp_path / "t.bbtrace")
    assert "program: ended by SIGSEGV before a thread had executed 65,536" in str(caught.value)
    assert "the trace is empty. Does the same command work without QEMU?" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_instruction_that_qemu_does_not_know_is_explained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "wide.c").write_text(
        """#include <immintrin.h>
int main(int argc, char **argv) {
  for (volatile int turn = 0; turn < (argc > 1 ? 100000 : 10); ++turn)
    ;
  volatile __m512i wide = _mm512_set1_epi32(argc);
  return 0;
}
"""
    )
    command = [str(stock_tool("clang")), "-O1", "-mavx512f", "-fbasic-block-address-map", "wide.c"]
    run_command([*command, "-fuse-ld=lld", "-Wl,--build-id", "-o", "wide"], cwd=tmp_path)
    with pytest.raises(TraceError) as caught:
        record(tmp_path / "wide", [], tmp_path / "t.bbtrace")
    assert "wide: ended by SIGILL before a thread" in str(caught.value)
    assert "QEMU lacks one of its instructions, such as AVX-512" in str(caught.value)
    assert "with at most -march=x86-64-v3" in str(caught.value)
    trace = record(tmp_path / "wide", ["long"], tmp_path / "t.bbtrace")
    assert trace.total > 100_000
    assert "wide: ended by SIGILL; the trace is kept (QEMU lacks" in caplog.text


def test_a_time_limit_before_the_first_record_is_explained(tmp_path: Path) -> None:
    (tmp_path / "wait.c").write_text("#include <unistd.h>\nint main(void) { pause(); }\n")
    command = [str(stock_tool("clang")), "-O1", "-fbasic-block-address-map", "wait.c"]
    run_command([*command, "-fuse-ld=lld", "-Wl,--build-id", "-o", "wait"], cwd=tmp_path)
    with pytest.raises(TraceError, match=r"ended by SIGKILL before .* If it was the time limit"):
        record(tmp_path / "wait", [], tmp_path / "t.bbtrace", timeout_s=2)


def test_a_program_may_close_all_files(program: Path, tmp_path: Path) -> None:
    output = tmp_path / "stdout"
    trace = record(program, ["close", "60000"], tmp_path / "t.bbtrace", stdout=output)
    assert executions(trace, "turn") == 1
    assert output.read_bytes() == b""


def test_programs_that_it_starts_are_not_traced_but_told_of(
    program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    trace = record(program, ["start"], tmp_path / "t.bbtrace")
    assert executions(trace, "main") == 1
    assert "start another program" in caplog.text


def test_a_failing_run_leaves_nothing(program: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="exit status 3 under QEMU, expected 0"):
        record(program, ["nonsense"], tmp_path / "t.bbtrace")
    assert not list(tmp_path.iterdir())


def test_other_code_only(build: Build, program: Path, tmp_path: Path) -> None:
    other = build(name="other")
    with pytest.raises(
        TraceError, match="none of its blocks ran; did the program run another file"
    ):
        record(other, ["turn"], tmp_path / "t.bbtrace", program=program)


def test_a_folder_with_a_comma(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a,b c"
    folder.mkdir()
    shutil.copy(program, folder / "p,q")
    trace = record(folder / "p,q", ["turn", "10"], folder / "t.bbtrace")
    assert executions(trace, "turn") == 1


def test_without_address_map(build: Build, tmp_path: Path) -> None:
    binary = build(map_flag="")
    with pytest.raises(BinaryError, match=r"address map.*-fbasic-block-address-map"):
        record(binary, ["turn"], tmp_path / "t.bbtrace")


def test_without_qemu(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some hosts have one beside the virtual environment, too.
    monkeypatch.setattr("compiler_opt_perf.run.qemu._UNPACKED", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TraceError, match="qemu-x86_64: not found on PATH; install it"):
        record(program, ["turn"], tmp_path / "t.bbtrace")


def test_wrong_name_and_not_executable(program: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="must end with .bbtrace"):
        record(program, ["turn"], tmp_path / "trace.txt")
    copy = tmp_path / "copy"
    shutil.copyfile(program, copy)
    os.chmod(copy, 0o644)
    with pytest.raises(TraceError, match="cannot be executed"):
        record(copy, ["turn"], tmp_path / "t.bbtrace")
