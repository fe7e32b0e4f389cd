# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures block traces of real programs: slowdown, size, accuracy.

For each program: processor time of a traced run against a plain one, side by side, and of QEMU and
valgrind that do nothing else; bytes a block; speed of writing and reading; and how often the
trace's counts differ from those of callgrind. Writes OUTPUT/PROGRAM.json.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt_perf.binary.elf import hide_debug_info
from compiler_opt_perf.cost.timing import processor_seconds, seconds_so_far
from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.workload import Run
from compiler_opt_perf.pmu.callgrind import CacheGeometry, simulate
from compiler_opt_perf.pmu.callgrind_dump import read_dumps
from compiler_opt_perf.studies.common import saved
from compiler_opt_perf.studies.workloads import COUNTED, Built
from compiler_opt_perf.traces.counts import block_counts
from compiler_opt_perf.traces.qemu import record
from compiler_opt_perf.traces.trace_file import Trace
from compiler_opt_perf.traces.windows import Windows

_PAIRS = 3
_WINDOW = 4
_FLAGS = ("-O2", "-g", "-fbasic-block-address-map", "-march=x86-64-v2")
PROGRAMS = ("zstd", "lua", "sqlite")


def measure(case: Built, folder: Path) -> dict[str, Any]:
    """All measurements of one program, in a folder of its own."""
    command: list[str | Path] = [case.binary, *case.arguments]
    path = folder / f"{folder.name}.bbtrace"
    emulated = ["qemu-x86_64", "-cpu", "max,-erms,-fsrm", *command]
    simulated = ["valgrind", "--tool=none", "--vgdb=no", *_stripped(case, folder)]

    def traced() -> float:
        before = seconds_so_far(own=False)
        record(case.binary, case.arguments, path)
        return seconds_so_far(own=False) - before

    ways: dict[str, Callable[[], float]] = {
        "native": lambda: processor_seconds(command),
        "traced": traced,
        "qemu": lambda: processor_seconds(emulated),
        "valgrind": lambda: processor_seconds(simulated),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    # Interleaved, so that other work on the machine affects all alike.
    for _ in range(_PAIRS):
        for way, work in ways.items():
            seconds[way].append(work())
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


def _stripped(case: Built, folder: Path) -> list[str | Path]:
    """The command with a copy of the program that valgrind can read."""
    copy = folder / "copy" / case.binary.name
    copy.parent.mkdir(exist_ok=True)
    hide_debug_info(case.binary, copy)
    return [copy, *case.arguments]


def deviation(case: Built, trace: Trace, counts: Any, folder: Path) -> dict[str, int]:
    """How the counts of the trace differ from callgrind's at the blocks' first instructions."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, *arguments = _stripped(case, folder)
        dumps = simulate(Run(Path(copy), list(map(str, arguments))), Path(scratch), CacheGeometry())
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


def study(programs: Sequence[str], output: Path) -> str:
    """Measures some of `PROGRAMS`; returns tables of all results in the folder, in Markdown."""
    output = output.resolve()
    for name in programs:
        folder = output / name
        folder.mkdir(parents=True, exist_ok=True)
        case = COUNTED[name](folder).build(folder, _FLAGS)
        write_json(output / f"{name}.json", measure(case, folder))
    return tables(saved(output, PROGRAMS))
