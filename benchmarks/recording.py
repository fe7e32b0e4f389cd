# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does it take to record a candidate's own run, with addresses, and to profile it?

The runs are those that other benchmarks count; recordings of candidates should be as short.
"""

import statistics
from pathlib import Path

from benchmarks.common import TIMEOUT_S
from benchmarks.programs.workloads import COUNTED
from benchmarks.results import Cell, Table
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.cost.recording import RECORD_FLAGS, Workload, record
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.run.timing import processor_seconds

PROGRAMS = ("zstd", "lua", "sqlite")
# At most what QEMU knows.
_FLAGS = ("-O2", *PROFILING_FLAGS.split(), *RECORD_FLAGS, "-march=x86-64-v2")
_NATIVE_RUNS = 5


def study(programs: list[str], folder: Path) -> list[Table]:
    """Records and profiles a run of each of the given `PROGRAMS`."""
    rows = [_row(name, folder / name) for name in programs]
    columns = {
        "program": "text",
        "million blocks": "number:1",
        "windows, kB": "integer",
        "native": "seconds:2",
        "recorded": "ratio:1",
        "profiled": "ratio:0",
        "memory to record, MiB": "integer",
        "memory of both, MiB": "integer",
    }
    caption = (
        "A run of each program: executed blocks, size of what is kept of the trace, processor time "
        "natively and as multiples of it, and the most memory of a simulator."
    )
    return [Table.of("recording", caption, columns, rows)]


def _row(name: str, folder: Path) -> list[Cell]:
    folder.mkdir(exist_ok=True)
    case = COUNTED[name](folder).build(folder, _FLAGS)
    argv: list[str | Path] = [case.binary, *case.arguments]
    native = statistics.median(processor_seconds(argv) for _ in range(_NATIVE_RUNS))
    workload = Workload(tuple(case.arguments), timeout_s=TIMEOUT_S)
    kept = folder / "recordings"
    traced = record(case.binary, workload, kept, None)
    both = record(case.binary, workload, kept, CacheGeometry())
    profiled = both.seconds - traced.seconds
    return [
        *(name, traced.blocks / 1e6, round(traced.windows.stat().st_size / 1e3), native),
        *(traced.seconds / native, profiled / native),
        *(round(traced.peak_mib), round(both.peak_mib)),
    ]
