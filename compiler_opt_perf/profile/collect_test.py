# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS, BinaryError, build_id
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.coverage import coverage
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import EVENTS, RATES, Event, RateRow
from compiler_opt_perf.profile.function_table import control_flow_checksums
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.profile.profile import Profile
from compiler_opt_perf.profile.report import show as show_profile
from compiler_opt_perf.profile.report import summarize
from compiler_opt_perf.profile.sample_profile import SampleProfile
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import FileWriteError
from compiler_opt_perf.run.llvm import stock_tool

pytestmark = pytest.mark.compiler

Show = Callable[[Path], dict[str, Any]]
Counts = Callable[[str, str], dict[tuple[int, int], int]]

# The function that holds each mark, and the lines from its first to the mark.
CHASE = "chase", 3
RANDOM = "countSmall", 3
SORTED = "countSmallOfSorted", 3


@pytest.fixture(scope="module")
def counts(profile: Manifest, show: Show) -> Counts:
    """The counts of an event in a function, by line and discriminator."""

    def read(event: str, function: str) -> dict[tuple[int, int], int]:
        record = show(profile.file(profile.event(event))).get(function, {})
        return {
            (line["line"], line.get("discriminator", 0)): line["samples"]
            for line in record.get("body", [])
        }

    return read


# What the profile says about a program whose behaviour is known


def test_pointer_chase_misses_at_each_step(counts: Counts) -> None:
    function, offset = CHASE
    assert counts("executions", function)[offset, 0] == 100_000
    loads = counts("loads", function)[offset, 0]
    assert loads == 100_000
    assert 0.98 <= counts("llc-load-misses", function)[offset, 0] / loads <= 1
    assert 0.98 <= counts("l1-load-misses", function)[offset, 0] / loads <= 1


def test_random_branch_is_mispredicted_half_the_time(counts: Counts) -> None:
    function, offset = RANDOM
    branches = counts("conditional-branches", function)[offset, 0]
    assert branches == 3 * 20_000
    mispredicts = counts("conditional-branch-mispredicts", function)[offset, 0]
    assert 0.45 <= mispredicts / branches <= 0.55


def test_sorted_branch_is_predicted(counts: Counts) -> None:
    function, offset = SORTED
    branches = counts("conditional-branches", function)[offset, 0]
    assert branches == 3 * 20_000
    mispredicts = counts("conditional-branch-mispredicts", function).get((offset, 0), 0)
    assert mispredicts / branches < 0.005


def test_indirect_calls_of_changing_targets_are_mispredicted(counts: Counts) -> None:
    def total(event: str, function: str) -> int:
        return sum(counts(event, function).values())

    assert total("indirect-branches", "indirect") == 200
    assert total("indirect-branch-mispredicts", "indirect") <= 2
    assert total("indirect-branches", "alternate") == 1000
    assert total("indirect-branch-mispredicts", "alternate") >= 998


def test_call_through_the_plt_is_one_execution(
    profile: Manifest, show: Show, line_of: Callable[[str], int], source: Path
) -> None:
    lines = source.read_text().splitlines()
    start = next(i for i, line in enumerate(lines, 1) if line.startswith("static void measure"))
    main = show(profile.file(profile.event("executions")))["main"]
    (measure,) = next(
        site["samples"] for site in main["callsites"] if site["samples"][0]["name"] == "measure"
    )
    counts = [
        line["samples"] for line in measure["body"] if line["line"] == line_of("external") - start
    ]
    assert counts == [300]


def test_inline_stack_has_a_profile_of_its_own(profile: Manifest, show: Show) -> None:
    outer = show(profile.file(profile.event("executions")))["outer"]
    (site,) = outer["callsites"]
    (middle,) = site["samples"]
    (inner,) = middle["callsites"][0]["samples"]
    assert (site["line"], middle["name"], inner["name"]) == (2, "middle", "inner")
    assert {"line": 1, "samples": 7000} in inner["body"]


def test_discriminators_and_call_targets(profile: Manifest, show: Show) -> None:
    body = show(profile.file(profile.event("executions")))["choose"]["body"]
    calls = {
        line["discriminator"]: (line["samples"], line["calls"]) for line in body if "calls" in line
    }
    assert calls == {
        1: (4500, [{"function": "often", "samples": 4500}]),
        2: (500, [{"function": "seldom", "samples": 500}]),
    }


def test_indirect_branches_and_their_targets(counts: Counts, profile: Manifest, show: Show) -> None:
    assert counts("indirect-branches", "indirect") == {(3, 0): 200}
    body = show(profile.file(profile.event("executions")))["indirect"]["body"]
    assert [line["calls"] for line in body if "calls" in line] == [
        [{"function": "seldom", "samples": 200}]
    ]


def test_unrolled_loop_has_the_executions_of_its_line(counts: Counts) -> None:
    assert counts("executions", "unrolled")[3, 0] == 8000
    assert counts("stores", "unrolled")[3, 0] == 8000


def test_function_entries(profile: Manifest, show: Show) -> None:
    shown = show(profile.file(profile.event("executions")))
    heads = {name: record["head"] for name, record in shown.items()}
    assert heads["main"] == heads["chase"] == heads["outer"] == 1
    assert heads["countSmall"] == 3
    assert heads["often"] == 4500
    # Called by qsort, which is in another object.
    assert heads["compare"] == shown["compare"]["body"][0]["samples"] > 100_000


def test_zero_is_known_where_code_was_not_executed(
    counts: Counts, profile: Manifest, show: Show, source: Path
) -> None:
    """A branch not taken counts zero; a line without code, or of an uncalled function, nothing."""
    lines = source.read_text().splitlines()
    start = next(i for i, line in enumerate(lines, 1) if line.startswith("int main"))
    crash = next(i for i, line in enumerate(lines, 1) if "abort();" in line) - start
    executions = counts("executions", "main")
    assert executions[crash, 0] == 0
    assert executions[1, 0] == 1
    # Only executions say so: elsewhere the line is absent, as lines without such an event are.
    assert (crash, 0) not in counts("instructions", "main")
    # Inlined code of calls that did not happen is in its inline stack.
    main = show(profile.file(profile.event("executions")))["main"]
    assert any(site["samples"][0]["total"] == 0 for site in main["callsites"])
    assert "thread" not in show(profile.file(profile.event("executions")))


def test_odd_function_names(profile: Manifest, show: Show) -> None:
    shown = show(profile.file(profile.event("executions")))
    assert shown["a name:with 3"]["head"] == 1
    assert "3:4" not in shown


def test_totals_are_those_of_the_files(profile: Manifest, show: Show) -> None:
    for event in profile.events:
        assert 0 < event.located <= event.total
        if event.kind == "sum":
            records = show(profile.file(event)).values()
            assert sum(record["total"] for record in records) == event.located
    assert profile.event("executions").total == profile.event("instructions").total
    for name in ("instructions", "loads", "conditional-branches"):
        event = profile.event(name)
        assert event.located / event.total > 0.95
    assert profile.event("instructions").outside > 1_000_000  # The C library's qsort.


# The calls of one function


def test_within_a_function_its_calls_alone_are_counted(
    workload: Path, geometry: CacheGeometry, profile: Manifest, show: Show, tmp_path: Path
) -> None:
    """Of `seldom`, which another function calls, too, the calls in `choose` count."""
    path = tmp_path / "choose.pmu.json"
    manifest = collect(workload, ["measure"], path, geometry=geometry, within="choose")
    assert Manifest.load(path) == manifest and manifest.collector.within == "choose"
    shown = show(manifest.file(manifest.event("executions")))
    whole = show(profile.file(profile.event("executions")))
    assert {name: record["head"] for name, record in shown.items() if record["total"]} == {
        "choose": 1,
        "often": 4500,
        "seldom": 500,
    }
    assert whole["seldom"]["head"] == 700
    assert shown["choose"]["body"] == whole["choose"]["body"]
    assert shown["often"] == whole["often"]
    # Libraries count as far as it calls them.
    assert manifest.event("executions").outside < 0.01 * manifest.event("executions").total
    assert "calls of choose only" in summarize(manifest)


def test_within_a_function_threads_and_callbacks_are_counted(
    workload: Path, show: Show, tmp_path: Path
) -> None:
    """Counting begins in each thread that calls the function."""
    manifest = collect(workload, ["threads"], tmp_path / "outer.pmu.json", within="outer")
    outer = show(manifest.file(manifest.event("stores")))["outer"]
    assert (outer["total"], manifest.event("stores").total) == (1000, 1000)
    manifest = collect(workload, ["measure"], tmp_path / "compare.pmu.json", within="compare")
    compare = show(manifest.file(manifest.event("executions")))["compare"]
    assert compare["head"] == compare["body"][0]["samples"] > 100_000


def test_within_a_function_that_is_not_there(workload: Path, tmp_path: Path) -> None:
    def within(function: str, **options: Any) -> Manifest:
        path = tmp_path / "x.pmu.json"
        return collect(workload, ["repeat", "1"], path, within=function, timeout_s=60, **options)

    with pytest.raises(
        BinaryError, match="workload: has no function chose; check its linkage name"
    ):
        within("chose")
    with pytest.raises(PmuError, match="workload: compare was not called in this run"):
        within("compare")
    with pytest.raises(PmuError, match="perf cannot count the calls of one function alone"):
        within("choose", backend="perf")
    assert not list(tmp_path.iterdir())


# Other tools accept the files


def test_merge_doubles_each_profile(profile: Manifest, show: Show, tmp_path: Path) -> None:
    for event in profile.events:
        file = profile.file(event)
        merge = [str(stock_tool("llvm-profdata")), "merge", "--sample"]
        run_command([*merge, file, file, "-o", tmp_path / "twice"], timeout_s=60)
        once, twice = show(file), show(tmp_path / "twice")
        assert {n: 2 * r["total"] for n, r in once.items()} == {
            n: r["total"] for n, r in twice.items()
        }


def test_overlap_of_a_profile_with_itself(profile: Manifest) -> None:
    for event in profile.events:
        file = profile.file(event)
        command = [str(stock_tool("llvm-profdata")), "overlap", "--sample"]
        text = run_command([*command, file, file], timeout_s=60).stdout
        assert "Whole program profile similarity: 100.000%" in text


def test_clang_uses_the_executions(profile: Manifest, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "workload.ll"
    file = profile.file(profile.event("executions"))
    run_command(
        [
            stock_tool("clang"),
            "-O2",
            *PROFILING_FLAGS.split(),
            f"-fprofile-sample-use={file}",
            "-Werror",
            "-S",
            "-emit-llvm",
            source,
            "-o",
            output,
        ],
        timeout_s=60,
    )
    text = output.read_text()
    assert "ProfileSummary" in text
    assert '!{!"function_entry_count", i64 4500}' in text
    assert "branch_weights" in text


# How it is written


def test_an_output_that_is_a_folder_is_refused_before_the_run(
    workload: Path, tmp_path: Path
) -> None:
    path = tmp_path / "w.pmu.json"
    path.mkdir()
    # This run would never end.
    with pytest.raises(PmuError, match=r"w\.pmu\.json: is a folder"):
        collect(workload, ["hang"], path, timeout_s=60)
    assert list(tmp_path.iterdir()) == [path]


def test_failed_run_leaves_the_old_profile(
    workload: Path, profile: Manifest, tmp_path: Path
) -> None:
    for file in profile.path.parent.iterdir():
        shutil.copy(file, tmp_path)
    path = tmp_path / profile.path.name
    with pytest.raises(PmuError, match="exit status 3"):
        collect(workload, ["fail", "x"], path, timeout_s=60)
    assert Manifest.load(path) == profile
    assert len(list(tmp_path.iterdir())) == 4 + 2 * len(profile.events)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_run_leaves_nothing(
    number: signal.Signals, workload: Path, tmp_path: Path
) -> None:
    output, scratch = tmp_path / "output", tmp_path / "scratch"
    output.mkdir()
    scratch.mkdir()
    # Whoever runs the tests may have SIGINT ignored, and this would be inherited.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from pathlib import Path; from compiler_opt_perf.profile.collect import collect; "
        "collect(Path(sys.argv[1]), ['hang'], Path(sys.argv[2]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, workload, output / "workload.pmu.json"],
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list(scratch.glob("**/valgrind.log")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _simulations(scratch)
    process.send_signal(number)
    assert process.wait(60) != 0
    while _simulations(scratch) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _simulations(scratch)
    assert not list(output.iterdir())
    if number == signal.SIGINT:
        assert not list(scratch.iterdir())


def _simulations(scratch: Path) -> list[Path]:
    """Processes whose command line names `scratch`."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(scratch).encode() in file.read_bytes():
                found.append(file)
        except OSError:
            continue  # It ended meanwhile.
    return found


def test_two_runs_at_once(workload: Path, geometry: CacheGeometry, tmp_path: Path) -> None:
    path = tmp_path / "workload.pmu.json"

    def run(mode: str) -> Manifest:
        return collect(workload, [mode], path, geometry=geometry, timeout_s=60)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, ["threads", "fork"]))
    assert Manifest.load(path) in results


def test_disk_full_at_the_output(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SampleProfile, "write_text", full)
    with pytest.raises(FileWriteError, match=r"no space left on the device"):
        collect(workload, ["threads"], tmp_path / "w.pmu.json", timeout_s=60)
    assert not list(tmp_path.iterdir())


def test_disk_full_at_the_temporary_folder(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("compiler_opt_perf.profile.backends.hide_debug_info", full)
    with pytest.raises(PmuError, match=r"no space left on the device.*TMPDIR"):
        collect(workload, ["threads"], tmp_path / "w.pmu.json", timeout_s=60)


def test_unfit_input(
    workload: Path, build: Callable[..., Path], profile: Manifest, tmp_path: Path
) -> None:
    path = tmp_path / "w.pmu.json"
    with pytest.raises(PmuError, match=r"must end with \.pmu\.json"):
        collect(workload, [], tmp_path / "w.json")
    with pytest.raises(BinaryError, match="has no build-id"):
        collect(build("-Wl,--build-id=none"), [], path)
    with pytest.raises(BinaryError, match="has no debug info"):
        collect(build(debug=""), [], path)
    # This run would never end.
    with pytest.raises(BinaryError, match=r"none of its \d+ instructions"):
        collect(build(debug="-gline-tables-only"), ["hang"], path, timeout_s=60)
    with pytest.raises(BinaryError, match="not an ELF file"):
        collect(profile.path, [], path)
    unexecutable = tmp_path / "workload"
    shutil.copyfile(workload, unexecutable)
    unexecutable.chmod(0o644)
    with pytest.raises(PmuError, match="cannot be executed"):
        collect(unexecutable, [], path)
    with pytest.raises(FileWriteError, match="workload: no file can be made in it: File exists"):
        collect(workload, [], unexecutable / "w.pmu.json")
    assert list(tmp_path.iterdir()) == [unexecutable]


_FINDS_ITS_FILES = """
#include <libgen.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
  char path[4096] = {0}, line[99];
  if (argc < 2)
    strcpy(path, argv[0]);
  else if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
    return 1;
  if (chdir(dirname(path)))
    return 2;
  for (int i = 0; i < 2; ++i) {
    FILE *file = fopen(i ? "library" : "../share/words", "r");
    if (!file || !fgets(line, sizeof line, file))
      return 3;
  }
  return 0;
}
"""


def test_a_program_finds_what_lies_beside_it(tmp_path: Path) -> None:
    for name, text in (("a.c", _FINDS_ITS_FILES), ("bin/library", "1"), ("share/words", "2")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    program = tmp_path / "bin" / "finder"
    run_command([stock_tool("clang"), "-O1", *PROFILING_FLAGS.split(), "-o", program, "a.c"],
                cwd=tmp_path)  # fmt: skip
    for arguments in ([], ["by its link in /proc"]):
        collect(program, arguments, tmp_path / "finder.pmu.json", timeout_s=60)
    assert sorted(os.listdir(program.parent)) == ["finder", "library"]


@pytest.mark.parametrize("read", ["collect", "checksums", "build-id"])
def test_libtools_script_is_not_the_program(read: str, workload: Path, tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text('#!/bin/sh\nexec "$(dirname "$0")/.libs/tool" "$@"\n')
    script.chmod(0o755)
    runs: dict[str, Callable[[], object]] = {
        "collect": lambda: collect(script, [], tmp_path / "w.pmu.json"),
        "checksums": lambda: control_flow_checksums(script),
        "build-id": lambda: build_id(script),
    }
    run = runs[read]
    with pytest.raises(BinaryError, match="tool: not an ELF file, but a script$"):
        run()
    (tmp_path / ".libs").mkdir()
    shutil.copy(workload, tmp_path / ".libs" / "tool")
    with pytest.raises(BinaryError, match=rf"; the program itself is {tmp_path}/\.libs/tool$"):
        run()


@pytest.mark.parametrize(
    "debug", ["-gline-tables-only -fdebug-info-for-profiling", "-g1 -fdebug-info-for-profiling"]
)
def test_line_tables_for_profiling_are_enough(
    debug: str, build: Callable[..., Path], tmp_path: Path
) -> None:
    manifest = collect(build(debug=debug), ["repeat", "2"], tmp_path / "w.pmu.json", timeout_s=60)
    assert manifest.event("executions").located > 0


@pytest.mark.parametrize("debug", ["-g", "-g -fdebug-info-for-profiling"])
def test_code_without_discriminators_is_warned_of(
    debug: str, build: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", logger="absl"):
        collect(build(debug=debug), ["measure"], tmp_path / "w.pmu.json", timeout_s=60)
    assert ("without -fdebug-info-for-profiling: statements" in caplog.text) == (debug == "-g")


def test_code_without_locations_is_warned_of(
    build: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Most of the program is then the C library's qsort, which has no debug info.
    binary = build("-static")
    with caplog.at_level("WARNING", logger="absl"):
        collect(binary, ["measure"], tmp_path / "w.pmu.json", timeout_s=60)
    assert "of the executions have a source location; was all of the program" in caplog.text


def test_what_has_no_location_is_reported_with_the_reason(
    build: Callable[..., Path], workload: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pattern = r"([\d.]+)% of the executions are in functions without debug info, ([\d.]+)% in ins"
    shares = []
    for binary in (workload, build("-static")):
        caplog.clear()
        with caplog.at_level("INFO", logger="absl"):
            manifest = collect(binary, ["measure"], tmp_path / "w.pmu.json", timeout_s=60)
        (found,) = re.findall(pattern, caplog.text)
        event = manifest.event("executions")
        located = 100 * event.located / event.total
        assert located + sum(map(float, found)) == pytest.approx(100, abs=0.2)
        shares.append(float(found[0]))
    # The start-up code alone; the C library's qsort.
    assert shares[0] < 0.1
    assert shares[1] > 50


def test_generated_code_is_reported(
    workload: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="absl"):
        collect(workload, ["generate"], tmp_path / "w.pmu.json", timeout_s=60)
    assert "executed in code generated or modified at run time" in caplog.text
    assert "MiB of memory" in caplog.text


def test_libraries_are_reported(
    workload: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="absl"):
        collect(workload, ["measure"], tmp_path / "w.pmu.json", timeout_s=60)
    assert "of the instructions were executed in /" in caplog.text
    assert "libc.so.6, which is not profiled" in caplog.text


def test_an_event_is_one_row_and_so_is_a_rate(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are then in the profile and in all reports; their cost counts."""
    event = Event("l1-store-misses", "sum", "misses", callgrind="D1mw", penalty_cycles=7)
    row = RateRow("store-miss-rate", "l1-store-misses", "stores", 16.0, "misses per store")
    for module in ("callgrind_dump", "profile"):
        monkeypatch.setattr(f"compiler_opt_perf.profile.{module}.EVENTS", (*EVENTS, event))
    monkeypatch.setattr("compiler_opt_perf.profile.store.RATES", (*RATES, row))
    manifest = collect(workload, ["measure"], tmp_path / "w.pmu.json", timeout_s=60)
    assert manifest.event("l1-store-misses").located > 0
    share = 16 / manifest.event("stores").total
    assert manifest.rates[-1].prior_share == pytest.approx(share)
    assert manifest.rates[-1] == row.with_prior(manifest.rates[-1].prior_share)
    profile = Profile.load(manifest.path)
    text = show_profile(profile, 50)
    assert "\nl1-store-misses  " in text
    assert "\nstore-miss-rate  " in text
    assert "l1-store-misses 7" in text
    # Beside functions and beside lines where it occurred.
    for heading in ("most costly functions", "most costly lines"):
        table = text[text.index(heading) :].partition("\n\nmost costly")[0]
        assert re.search(r"^ .*\bstore-miss-rate [\d.]", table, re.MULTILINE), heading
    found = {event.name: lookups.exact for event, lookups in coverage(profile, workload).counts}
    assert found["l1-store-misses"] == manifest.event("l1-store-misses").located


# Programs in several parts


def test_split_debug_info(
    source: Path, profile: Manifest, geometry: CacheGeometry, show: Show, tmp_path: Path
) -> None:
    """The same profile as with debug info in the binary; from .dwo files and from a .dwp."""
    flags = [*PROFILING_FLAGS.split(), "-O2", "-gsplit-dwarf"]
    clang = stock_tool("clang")
    folder = tmp_path / "build"
    folder.mkdir()
    run_command([clang, *flags, "-c", source, "-o", "workload.o"], cwd=folder, timeout_s=60)
    run_command([clang, "-Wl,--build-id", "workload.o", "-o", "workload"], cwd=folder, timeout_s=60)
    binary = folder / "workload"

    def collected(name: str) -> dict[str, Any]:
        manifest = collect(binary, ["repeat", "3"], tmp_path / f"{name}.pmu.json", timeout_s=60)
        assert manifest.event("instructions").located / manifest.event("instructions").total > 0.9
        return show(manifest.file(manifest.event("executions")))

    split = collected("split")
    assert split["outer"]["callsites"][0]["samples"][0]["name"] == "middle"
    run_command([stock_tool("llvm-dwp"), "-e", binary, "-o", f"{binary}.dwp"], timeout_s=60)
    (folder / "workload.dwo").rename(tmp_path / "workload.dwo")
    assert collected("packed") == split
    (folder / "workload.dwp").unlink()
    with pytest.raises(BinaryError, match=r"1 files of its split debug info .*\.dwo; put"):
        collect(binary, ["repeat", "3"], tmp_path / "none.pmu.json", timeout_s=60)


def test_shared_library(source: Path, show: Show, tmp_path: Path) -> None:
    """A library is profiled in a run of a program that loads it under another name."""
    clang, flags = stock_tool("clang"), [*PROFILING_FLAGS.split(), "-O2", "-Wl,--build-id"]
    code = tmp_path / "library.c"
    code.write_text(
        "volatile long Sink;\n"
        "static void inner(long I) { Sink = I; }\n"
        "void work(long N) {\n  for (long I = 0; I < N; ++I)\n    inner(I);\n}\n"
    )
    main = tmp_path / "main.c"
    main.write_text("void work(long);\nint main(void) { work(4096); return 0; }\n")
    library, program = tmp_path / "libwork.so.1.2", tmp_path / "main"
    options = ["-fPIC", "-shared", "-Wl,-soname,libwork.so.1"]
    run_command([clang, *flags, *options, code, "-o", library], timeout_s=60)
    (tmp_path / "libwork.so.1").symlink_to(library)
    run_command([clang, *flags, main, tmp_path / "libwork.so.1", "-o", program], timeout_s=60)

    manifest = collect(library, [], tmp_path / "l.pmu.json", program=program, timeout_s=60)
    assert manifest.program.path == "libwork.so.1.2"
    assert manifest.collector.command == ("main",)
    assert manifest.event("stores").located == 4096
    executions = show(manifest.file(manifest.event("executions")))
    (inlined,) = executions["work"]["callsites"][0]["samples"]
    assert inlined["body"][0]["samples"] == 4096
    # Called from the program, which is another file.
    assert executions["work"]["head"] == 1
    with pytest.raises(PmuError, match="none of its instructions was executed"):
        other = tmp_path / "other"
        other.mkdir()
        run_command([clang, *flags, "-fPIC", "-shared", code, "-o", other / "x.so"], timeout_s=60)
        collect(other / "x.so", ["a"], tmp_path / "x.pmu.json", program=Path("/bin/true"))
