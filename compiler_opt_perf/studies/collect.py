# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures PMU collection on real programs: slowdown, size, and located counts.

Programs are built from Debian's sources;
the compiler is the patched one of `cop toolchain build --set=dev`.
"""

import logging as python_logging
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.timing import processor_seconds, seconds_so_far
from compiler_opt_perf.studies.common import saved
from compiler_opt_perf.studies.workloads import Built, build

_NATIVE_RUNS = 5
PROGRAMS = ("zstd", "lmdb", "lua", "clang")


def native_seconds(argv: Sequence[str | Path]) -> float:
    """Median processor time of a few runs."""
    return statistics.median(processor_seconds(argv) for _ in range(_NATIVE_RUNS))


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
    native = native_seconds([case.binary, *case.arguments])
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
        "slowdown": simulated / native,
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


def tables(results: dict[str, dict[str, Any]]) -> str:
    """Tables of the results, in Markdown."""
    rows = [
        "| program | native | simulated | slowdown | memory | instructions | of them in libraries "
        "| conversion | profile |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        everything = result["instructions"] + result["outside"]
        rows.append(
            f"| {name} | {result['native_s']:.2f} s | {result['simulated_s']:.1f} s "
            f"| {result['slowdown']:.0f} | {result['memory_mib']:.0f} MiB "
            f"| {everything / 1e6:.0f} M | {100 * result['outside'] / everything:.0f}% "
            f"| {result['conversion_s']:.1f} s | {result['profile_kb']:.0f} kB |"
        )
    shown = (
        "executions",
        "loads",
        "llc-load-misses",
        "conditional-branches",
        "conditional-branch-mispredicts",
    )
    rows += ["", "| located | " + " | ".join(shown) + " | no debug info | symbolised |"]
    rows.append("|---" * (len(shown) + 3) + "|")
    for name, result in results.items():
        cells = [f"{100 * result['located'][event]:.1f}%" for event in shown]
        cells.append(f"{result['undescribed']:.1f}%")
        speed = result["addresses"] / result["symbolising_s"] * 60 / 1e6
        rows.append(f"| {name} | " + " | ".join([*cells, f"{speed:.2f} M/min"]) + " |")
    return "\n".join(rows) + "\n"


def study(programs: Sequence[str], output: Path) -> str:
    """Measures the given `PROGRAMS`; returns tables of all results in the folder, in Markdown."""
    output = output.resolve()
    for name in programs:
        result = measure(build(name, output / name), output / f"{name}.pmu.json")
        write_json(output / f"{name}.collection.json", result)
    return tables(saved(output, PROGRAMS, ".collection.json"))
