# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does the collection of a PMU profile cost on real programs, and how much has a location?

Programs are built from Debian's sources with the patched compiler of `cop toolchain build`.
"""

import logging as python_logging
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from benchmarks.common import saved
from benchmarks.programs.patched_clang import patched_clang
from benchmarks.programs.workload import Built
from benchmarks.programs.workloads import COUNTED
from benchmarks.results import Table
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.timing import processor_seconds, seconds_so_far

PROGRAMS = ("zstd", "lmdb", "lua", "clang")
_NATIVE_RUNS = 5
# Names in the table, and events.
_EVENTS = {
    "executions": "executions",
    "loads": "loads",
    "last-level misses": "llc-load-misses",
    "branches": "conditional-branches",
    "mispredictions": "conditional-branch-mispredicts",
}


class _Log(python_logging.Handler):
    """Keeps the log messages of a collection."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: python_logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def number(self, pattern: str) -> float:
        """The number in the only line that matches the pattern."""
        (found,) = [match[1] for line in self.lines if (match := re.search(pattern, line))]
        return float(found)


def measure(case: Built, path: Path) -> dict[str, Any]:
    """Collects the profile `path`; returns its cost and its contents in numbers."""
    argv: list[str | Path] = [case.binary, *case.arguments]
    native = statistics.median(processor_seconds(argv) for _ in range(_NATIVE_RUNS))
    log = _Log()
    logging.get_absl_logger().addHandler(log)
    before = seconds_so_far()
    manifest = collect(case.binary, case.arguments, path)
    seconds = seconds_so_far() - before
    logging.get_absl_logger().removeHandler(log)
    simulated = log.number(r"simulated in .* \(([\d.]+) s of processor time")
    return {
        "native_s": native,
        "simulated_s": simulated,
        "memory_mib": log.number(r"with at most (\d+) MiB of memory"),
        "instructions": manifest.event("instructions").total,
        "outside": manifest.event("instructions").outside,
        "undescribed": log.number(r"^.*: ([\d.]+)% of the executions are in functions without"),
        "conversion_s": seconds - simulated,
        "addresses": log.number(r"^symbolising (\d+) instructions"),
        "symbolising_s": log.number(r"^symbolising .* \(([\d.]+) s of processor"),
        "profile_kb": sum(event.profile.bytes for event in manifest.events) / 1e3,
        "located": {event.name: event.located / max(1, event.total) for event in manifest.events},
    }


def tables(results: dict[str, dict[str, Any]]) -> list[Table]:
    """The cost of collecting by program, and the shares of events that have a location."""
    rows = []
    for name, one in results.items():
        everything = one["instructions"] + one["outside"]
        row = [name, one["native_s"], one["simulated_s"], one["simulated_s"] / one["native_s"]]
        row += [everything / 1e6, 100 * one["outside"] / everything]
        row += [one["memory_mib"], one["conversion_s"], one["profile_kb"]]
        row += [100 * one["located"][event] for event in _EVENTS.values()]
        speed = one["addresses"] / one["symbolising_s"] * 60 / 1e6
        rows.append([*row, one["undescribed"], speed])
    columns = {
        "program": "text",
        "native": "seconds:2",
        "simulated": "seconds:1",
        "slowdown": "integer",
        "million instructions": "integer",
        "in libraries": "percent:0",
        "memory, MiB": "integer",
        "conversion": "seconds:1",
        "profile, kB": "integer",
        **dict.fromkeys((f"located {what}" for what in _EVENTS), "percent:1"),
        "no debug info": "percent:1",
        "million addresses a minute": "number:2",
    }
    caption = (
        "Processor times of a collection by callgrind, the shares of counts with a source "
        "location, and the speed of symbolising."
    )
    return [Table.of("collect", caption, columns, rows)]


def study(programs: Sequence[str], folder: Path) -> list[Table]:
    """Measures the given `PROGRAMS`; returns tables of all results in the folder."""
    for name in programs:
        own = folder / name
        own.mkdir(exist_ok=True)
        case = patched_clang(own) if name == "clang" else COUNTED[name](own).build(own)
        result = measure(case, folder / f"{name}.pmu.json")
        write_json(folder / f"{name}.collection.json", result)
    return tables(saved(folder, PROGRAMS, ".collection.json"))
