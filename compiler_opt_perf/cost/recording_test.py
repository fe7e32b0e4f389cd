# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds of one program whose control flow differs, each judged by a recorded run of its own."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.blocks.cpu_files import FOLDER
from compiler_opt_perf.cost import recording
from compiler_opt_perf.cost.evaluator import EVALUATORS, RECORDED, Context, Replay
from compiler_opt_perf.cost.recording import (
    CYCLES_ELSEWHERE,
    ELSEWHERE,
    RECORD_FLAGS,
    Recorder,
    RecordingError,
    Workload,
    judged,
    record,
)
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trace import native, qemu

pytestmark = pytest.mark.compiler

CPU = FOLDER / "znver5.json"
# Its first argument is the number of rounds; as the second one, "fail", "crash" or "hang". What is
# defined is printed as well. It reads the file that a third argument names.
_SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
INLINE static long step(long x, long y) { return x * 31 + (y ^ (x >> 7)); }
int main(int argc, char **argv) {
  long sum = SEED, rounds = atol(argv[1]);
  const char *how = argc > 2 ? argv[2] : "";
  if (argc > 3) {
    FILE *file = fopen(argv[3], "r");
    for (int c; (c = fgetc(file)) != EOF;) sum += c;
  }
  for (long i = 0; i < rounds; ++i) sum = step(sum, i) + step(i, sum);
#ifdef COPIES
  static char text[4096];
  for (long i = 0; i < rounds; ++i) memmove(text + i % 8, text, 4000);
#endif
  if (!strcmp(how, "fail")) return 3;
  if (!strcmp(how, "crash")) abort();
  while (!strcmp(how, "hang")) ++*(volatile long *)&sum;
  printf("%ld\\n", sum);
}
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name: with and without inlining, one that computes something else, an object file."""
    folder = tmp_path_factory.mktemp("builds")
    (folder / "program.c").write_text(_SOURCE)
    inlined, called = "__attribute__((always_inline))", "__attribute__((noinline))"
    kinds = {
        "inlined": [f"-DINLINE={inlined}", "-DSEED=0", *PROFILING_FLAGS.split()],
        "called": [f"-DINLINE={called}", "-DSEED=0", *PROFILING_FLAGS.split()],
        "copying": [f"-DINLINE={called}", "-DSEED=0", "-DCOPIES", *PROFILING_FLAGS.split()],
        "other": [f"-DINLINE={called}", "-DSEED=1", *PROFILING_FLAGS.split()],
        "undescribed": [f"-DINLINE={called}", "-DSEED=0"],
        "object": [f"-DINLINE={called}", "-DSEED=0", "-c"],
    }
    for name, words in kinds.items():
        link = [] if "-c" in words else ["-Wl,--build-id"]
        command: list[str | Path] = [stock_tool("clang"), "-O2", *RECORD_FLAGS, *words, *link]
        command.append("program.c")
        run_command([*command, "-o", name], cwd=folder, timeout_s=120)
    return {name: folder / name for name in kinds}


@pytest.fixture
def context(toolchain: Toolchain) -> Context:
    return Context(tool=toolchain.trace_cost, cpu=CPU, threads=1)


def _recorder(
    folder: Path, *arguments: str, evaluator: str = "count", limit: float = 60.0
) -> Recorder:
    chosen = EVALUATORS[evaluator]
    assert isinstance(chosen, Replay)
    return Recorder(chosen, Workload(arguments, timeout_s=limit), folder)


def test_each_build_is_judged_by_its_own_run(
    builds: dict[str, Path], context: Context, tmp_path: Path
) -> None:
    for evaluator, least in (("count", 1.2), ("mca-pmu", 0.0)):
        recorder = _recorder(tmp_path, "30000", evaluator=evaluator)
        inlined, called = judged(recorder, [[builds["inlined"]], [builds["called"]]], context)
        assert "step" in called.parts and "step" not in inlined.parts
        assert called.total > least * inlined.total
        # Nothing is missing, unlike in a replay.
        assert called.report["unmapped"]["executions"] == 0
        assert called.report[RECORDED]["blocks"] > inlined.report[RECORDED]["blocks"] > 10000
        assert called.report[RECORDED]["peak_mib"] > 0


def test_loads_miss_the_last_level_of_the_cpu_file(context: Context, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(
        """
        static long table[1 << 14];
        int main(void) {
          long sum = 0;
          for (int i = 0; i < 2 << 14; i += 8)
            sum += table[(i + (sum & 1)) & 0x3fff] += i;
          return sum & 1;
        }
        """
    )
    flags: list[str | Path] = ["-O2", *RECORD_FLAGS, *PROFILING_FLAGS.split(), "-Wl,--build-id"]
    run_command([stock_tool("clang"), *flags, "program.c", "-o", "program"], cwd=tmp_path)
    small = tmp_path / "cpu.json"
    small.write_text(CPU.read_text().replace('"16777216,16,64"', '"65536,16,64"'))
    recorder = _recorder(tmp_path / "kept", evaluator="mca-pmu")
    # The 128 KiB are in 16 MiB after the first round, and never in 64 KiB.
    for cpu, rounds in ((small, 2), (CPU, 1)):
        cost = recorder.cost([tmp_path / "program"], replace(context, cpu=cpu))
        kept = next((tmp_path / "kept").iterdir()) / "run.pmu.json"
        misses = Manifest.load(kept).event("llc-load-misses").total
        assert misses == pytest.approx(rounds * 2048, rel=0.05)
        assert cost.total > 100 * misses


def test_what_a_run_executes_in_libraries_counts(
    builds: dict[str, Path], context: Context, tmp_path: Path
) -> None:
    recorder = _recorder(tmp_path, "3000", evaluator="mca-pmu")
    copying, called = (recorder.cost([builds[name]], context) for name in ("copying", "called"))
    # A copy of 4,000 bytes takes 63 instructions at least, at 64 bytes each.
    executed = copying.report["elsewhere"]["instructions"]
    assert executed > called.report["elsewhere"]["instructions"] + 3000 * 63
    assert copying.parts[ELSEWHERE] == CYCLES_ELSEWHERE * executed
    assert copying.total == pytest.approx(sum(copying.parts.values()))
    assert copying.parts[ELSEWHERE] > copying.total / 2


def test_the_same_binary_and_run_are_recorded_once(
    builds: dict[str, Path], context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = _recorder(tmp_path, "1000", evaluator="mca-pmu")
    first = recorder.cost([builds["called"]], context)

    def again(*_: object, **__: object) -> None:
        raise AssertionError("recorded again")

    monkeypatch.setattr(qemu, "record_run", again)
    monkeypatch.setattr(recording, "collect_run", again)
    copy = Path(shutil.copy(builds["called"], tmp_path / "copy"))
    assert recorder.cost([copy], context) == first
    for other in ("2000", "1000 x"):
        with pytest.raises(AssertionError, match="recorded again"):
            _recorder(tmp_path, *other.split()).cost([copy], context)


def test_a_library_that_changes_records_anew(
    builds: dict[str, Path], context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(*_: object, **__: object) -> None:
        raise AssertionError("recorded again")

    recorder = _recorder(tmp_path / "kept", "1000")
    recorder.cost([builds["called"]], context)
    monkeypatch.setattr(qemu, "record_run", again)
    # All that the recorder compiles: sources that are libraries of their own.
    sources = sorted(path.stem for path in native.SOURCES.glob("*.c"))
    assert "code_caches" in sources
    found = {name: native.library(name) for name in sources}
    for changed in sources:
        other = {**found, changed: tmp_path / "other" / "library.so"}
        monkeypatch.setattr(native, "library", other.__getitem__)
        with pytest.raises(AssertionError, match="recorded again"):
            recorder.cost([builds["called"]], context)


def test_an_isolated_run_is_the_same_wherever_it_runs(
    builds: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "input.txt"
    text.write_text("some text")
    workload = Workload(("30000", "run", text.name), inputs=(text,), isolated=True)

    def digests(folder: Path) -> list[str]:
        found = record(builds["called"], workload, folder, CacheGeometry())
        assert found.profile is not None
        # The manifest has counts of other objects, too: the loader looks at each part of a path.
        counts = sorted(found.profile.parent.glob("run.*.afdo"))
        assert len(counts) > 10
        return [found.output, *map(sha256, (found.windows, *counts))]

    before = digests(tmp_path / "here")
    deep = tmp_path / "a" / "much" / "deeper" / "folder"
    deep.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", os.fspath(deep))
    monkeypatch.setenv("ANOTHER_VARIABLE", "of some length " * 20)
    assert digests(tmp_path / "there") == before


def test_loads_of_an_extracted_part_have_their_own_misses(context: Context, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(
        """
        #include <stdio.h>
        static long table[1 << 16];
        volatile long small[8];
        KIND long sum_of(int n) {
          if (n < 0)
            return 0;
          long sum = 0;
          for (int i = 0; i < n; i++) {
            sum += table[(i * 512 + (sum & 1)) & 0xffff];
            sum += small[i & 7];
            sum += small[i & 3];
          }
          table[n & 0xffff] = sum;
          return sum;
        }
        int main(void) {
          long sum = 0;
          for (int i = 0; i < 500; i++)
            sum += sum_of(i) + sum_of(2 - i);
          printf("%ld\\n", sum);
        }
        """
    )
    flags: list[str | Path] = ["-O2", *RECORD_FLAGS, *PROFILING_FLAGS.split(), "-Wl,--build-id"]
    for option in (
        "-enable-partial-inlining",
        "-skip-partial-inlining-cost-analysis",
        "-inline-threshold=0",
    ):
        flags += ["-mllvm", option]
    recorder = _recorder(tmp_path / "kept", evaluator="mca-pmu")
    costs = []
    for kind in ("static", "__attribute__((noinline)) static"):
        words = [*flags, f"-DKIND={kind}", "program.c", "-o", "program"]
        run_command([stock_tool("clang"), *words], cwd=tmp_path)
        parts = recorder.cost([tmp_path / "program"], context).parts
        costs.append({name: cycles for name, cycles in parts.items() if "sum_of" in name})
    (extracted, part), (whole, function) = (next(iter(one.items())) for one in costs)
    assert (extracted, whole) == ("sum_of.1.extracted", "sum_of")
    # One of the three loads misses, and the next iteration waits for it.
    assert part == pytest.approx(function, rel=0.05)


@pytest.mark.parametrize(
    ("name", "arguments", "evaluator", "message"),
    [
        ("object", ["9"], "count", r"object: cannot be executed; a candidate .* is a program"),
        ("called", ["9", "fail"], "count", r"called: .*exit status 3 under QEMU, expected 0"),
        ("called", ["99999", "crash"], "count", r"called: was killed by SIGABRT in its recorded"),
        ("called", ["99999", "hang"], "count", r"its limit of 3 s\. A run .* smaller input"),
        ("undescribed", ["9"], "mca-pmu", r"undescribed: .*debug info"),
    ],
)
def test_a_run_that_cannot_be_recorded_is_explained(
    builds: dict[str, Path],
    context: Context,
    tmp_path: Path,
    name: str,
    arguments: list[str],
    evaluator: str,
    message: str,
) -> None:
    limit = 3.0 if "hang" in arguments else 60.0
    recorder = _recorder(tmp_path, *arguments, evaluator=evaluator, limit=limit)
    with pytest.raises(RecordingError, match=message):
        recorder.cost([builds[name]], context)


def test_a_build_that_computes_something_else_is_refused(
    builds: dict[str, Path], context: Context, tmp_path: Path
) -> None:
    recorder = _recorder(tmp_path, "1000")
    with pytest.raises(RecordingError, match="other: prints something else"):
        judged(recorder, [[builds["called"]], [builds["other"]]], context)
    with pytest.raises(RecordingError, match="is one of 2 files; .* link it"):
        recorder.cost([builds["called"], builds["other"]], context)


def test_a_file_that_is_named_and_changes_is_another_run(
    builds: dict[str, Path], context: Context, tmp_path: Path
) -> None:
    text = tmp_path / "input.txt"
    recorder = _recorder(tmp_path / "kept", "1000", "run", os.fspath(text))
    outputs = []
    for content in ("one", "another"):
        text.write_text(content)
        cost = recorder.cost([builds["called"]], context)
        outputs.append(cost.report[RECORDED]["output"])
    assert outputs[0] != outputs[1]


def test_a_run_needs_no_folder_that_keeps_it(
    builds: dict[str, Path], context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", os.fspath(tmp_path))
    recorder = replace(_recorder(tmp_path, "1000"), folder=None)
    assert recorder.cost([builds["called"]], context).total > 1000
    assert list(tmp_path.iterdir()) == []
