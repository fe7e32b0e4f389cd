# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures block traces of real programs: how slow, how large, how exact.

    python -m compiler_opt_perf.studies.trace [--only=zstd,lua]
        [--output=build/bench-trace]

For each program: processor time of a traced run against a plain one, side by side, and of QEMU and
valgrind that do nothing else; bytes a block; speed of writing and reading; and how often the
trace's counts differ from those of callgrind. Writes OUTPUT/PROGRAM.json and prints tables.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags, logging

from compiler_opt_perf.cli.verb import parse_program
from compiler_opt_perf.corpus.programs import PROGRAMS, build_program, sqlite_amalgamation
from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.pmu.binary import hide_debug_info
from compiler_opt_perf.pmu.callgrind import CacheGeometry, read_dumps, simulate
from compiler_opt_perf.toolchain.layout import BUILD
from compiler_opt_perf.toolchain.source import debian_source
from compiler_opt_perf.traces.counts import block_counts
from compiler_opt_perf.traces.qemu import record
from compiler_opt_perf.traces.trace_file import Trace
from compiler_opt_perf.traces.windows import Windows

_PAIRS = 3
_WINDOW = 4
_FLAGS = ("-O2", "-g", "-fbasic-block-address-map", "-march=x86-64-v2")

_LUA = """
local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end
local function size(t) return t[1] and 1 + size(t[1]) + size(t[2]) or 1 end
local total = 0
for i = 1, 10 do total = total + size(tree(12)) end
local words, state = {}, 42
for i = 1, 20000 do
  state = (state * 1103515245 + 12345) % 2147483648
  words[i] = ("%08x"):format(state)
end
table.sort(words)
print(total, #table.concat(words, " "):gsub("%x%x(%d+)", "<%1>"))
"""


@dataclass(frozen=True)
class Case:
    """A program and one run of it."""

    binary: Path
    arguments: list[str]


def compressor(output: Path, options: Sequence[str] = _FLAGS) -> Case:
    """zstd -9 on its own source."""
    tree = debian_source("libzstd")
    built = build_program(PROGRAMS["zstd"], tree, output, clang=stock_tool("clang"), flags=options)
    arguments = ["-9", "--single-thread", "-f", "-q", "-o", str(output / "out.zst")]
    return Case(built.binary, [*arguments, str(built.workload_input)])


def interpreter(output: Path, options: Sequence[str] = _FLAGS) -> Case:
    """Lua with trees, sorting and pattern matching."""
    tree = debian_source("lua5.4")
    # Lua hashes and chooses pivots of large sorts by the time, so that no two runs are alike.
    options = (*options, "-Dluai_makeseed(L)=1u", "-Dl_randomizePivot()=1u")
    built = build_program(PROGRAMS["lua"], tree, output, clang=stock_tool("clang"), flags=options)
    (output / "script.lua").write_text(_LUA)
    return Case(built.binary, [str(output / "script.lua")])


def database(output: Path, options: Sequence[str] = _FLAGS) -> Case:
    """SQLite's own benchmark, in memory."""
    tree = debian_source("sqlite3")
    folder = sqlite_amalgamation(tree, output)
    binary = output / "speedtest1"
    sources = [folder / "sqlite3.c", folder / "speedtest1.c"]
    words = ["-fuse-ld=lld", "-Wl,--build-id", "-DSQLITE_THREADSAFE=0", f"-I{folder}"]
    libraries = ["-lm", "-ldl"]
    command: list[str | Path] = [stock_tool("clang"), *options, *words, *sources, *libraries]
    command += ["-o", binary]
    run_command(command, timeout_s=1200)
    return Case(binary, ["--memdb", "--size", "10"])


CASES: dict[str, Callable[[Path], Case]] = {
    "zstd": compressor,
    "lua": interpreter,
    "sqlite": database,
}


def processor_seconds(work: Callable[[], Any]) -> float:
    """User and system time of the processes that `work` runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(argv: Sequence[str | Path]) -> Callable[[], Any]:
    return lambda: subprocess.run(
        [str(word) for word in argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def measure(name: str, output: Path) -> dict[str, Any]:
    """Everything about one program."""
    folder = output / name
    folder.mkdir(parents=True, exist_ok=True)
    case = CASES[name](folder)
    command: list[str | Path] = [case.binary, *case.arguments]
    path = folder / f"{name}.bbtrace"
    ways: dict[str, Callable[[], Any]] = {
        "native": _run(command),
        "traced": lambda: record(case.binary, case.arguments, path),
        "qemu": _run(["qemu-x86_64", "-cpu", "max,-erms,-fsrm", *command]),
        "valgrind": _run(["valgrind", "--tool=none", "--vgdb=no", *_stripped(case, folder)]),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    # Side by side, so that the machine's other work hits all alike.
    for _ in range(_PAIRS):
        for way, work in ways.items():
            seconds[way].append(processor_seconds(work))
    ratios = {
        way: statistics.median(
            t / native for t, native in zip(times, seconds["native"], strict=True)
        )
        for way, times in seconds.items()
    }
    trace = Trace.load(path)
    start = time.process_time()
    counts = block_counts(trace)
    reading = time.process_time() - start
    start = time.process_time()
    windows = Windows.count(trace, _WINDOW)
    counting = time.process_time() - start
    return {
        "native_s": statistics.median(seconds["native"]),
        "traced_s": statistics.median(seconds["traced"]),
        "ratios": ratios,
        "blocks": trace.total,
        "streams": len(trace.streams),
        "bytes": path.stat().st_size,
        "reading_blocks_per_s": trace.total / reading,
        "windows_blocks_per_s": trace.total / counting,
        "distinct_windows": len(windows.counts),
        **deviation(case, trace, counts, folder),
    }


def _stripped(case: Case, folder: Path) -> list[str | Path]:
    """The command with a copy of the program that valgrind can read."""
    copy = folder / "copy" / case.binary.name
    copy.parent.mkdir(exist_ok=True)
    hide_debug_info(case.binary, copy)
    return [copy, *case.arguments]


def deviation(case: Case, trace: Trace, counts: Any, folder: Path) -> dict[str, int]:
    """How the counts of the trace differ from callgrind's at the blocks' first instructions."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, *arguments = _stripped(case, folder)
        dumps = simulate(Path(copy), list(map(str, arguments)), Path(scratch), CacheGeometry())
        simulated = read_dumps(dumps, Path(copy)).counts
    table = trace.table
    expected = np.array([simulated.get(a, [0])[0] for a in table.address.tolist()], np.int64)
    has_code = table.size > 0
    difference = np.abs(counts - expected)[has_code]
    return {
        "executed_blocks": int((expected[has_code] > 0).sum()),
        "differing_blocks": int((difference > 0).sum()),
        "differing_executions": int(difference.sum()),
    }


def tables(results: dict[str, dict[str, Any]]) -> str:
    """The results in Markdown."""
    rows = [
        "| program | native | traced, × native | QEMU alone | valgrind alone | blocks | million/s "
        "traced | bytes a block |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        ratios = r["ratios"]
        rows.append(
            f"| {name} | {r['native_s']:.2f} s | {ratios['traced']:.1f} | {ratios['qemu']:.1f} "
            f"| {ratios['valgrind']:.1f} | {r['blocks'] / 1e6:.1f} M "
            f"| {r['blocks'] / r['traced_s'] / 1e6:.1f} | {r['bytes'] / r['blocks']:.3f} |"
        )
    rows += [
        "",
        "| program | read, million/s | windows of 4, million/s | distinct windows "
        "| executed blocks | of them with another count than callgrind | executions more or less |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        rows.append(
            f"| {name} | {r['reading_blocks_per_s'] / 1e6:.0f} "
            f"| {r['windows_blocks_per_s'] / 1e6:.0f} | {r['distinct_windows']:,} "
            f"| {r['executed_blocks']:,} | {r['differing_blocks']} "
            f"| {r['differing_executions']:,} |"
        )
    return "\n".join(rows) + "\n"


def main(argv: Sequence[str]) -> None:
    values = flags.FlagValues()
    flags.DEFINE_string(
        "output", str(BUILD / "bench-trace"), "folder for results", flag_values=values
    )
    flags.DEFINE_list("only", list(CASES), "programs to measure", flag_values=values)
    parse_program(argv, values, __doc__ or "")
    logging.set_verbosity(logging.INFO)
    output = Path(values.output).resolve()
    for name in values.only:
        write_json(output / f"{name}.json", measure(name, output))
    measured = [name for name in CASES if (output / f"{name}.json").exists()]
    print(tables({name: json.loads((output / f"{name}.json").read_text()) for name in measured}))


if __name__ == "__main__":
    main(sys.argv)
