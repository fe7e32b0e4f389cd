# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calibrates evaluators of cycles: measures this machine's CPU without performance counters."""

import math
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from absl import logging

from compiler_opt_perf.blocks.cpu_files import host_cpu
from compiler_opt_perf.profile.cpus import host_geometry
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.llvm import stock_tool

FORMAT = "compiler-opt-perf/cpu"
VERSION = 1
SOURCE = Path(__file__).with_name("calibration.c")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Quantiles of a measurement's samples. Other load makes most disturbed samples larger; a few are
# smaller, because the load disturbed the reference chain of additions.
_LOW, _VALUE, _HIGH = 0.1, 0.25, 0.9
# Plausible ranges of measurements in cycles, and of parameters, for out-of-order x86-64 cores, with
# some margin. A 64-bit multiplication takes 3 or 4 cycles, an eliminated move at most 1; no known
# core renames more than 8 instructions per cycle.
_PLAUSIBLE = {
    "multiplication": (2.7, 4.4),
    "immediate_addition": (0.1, 1.2),
    "move": (0.1, 1.2),
    "pop": (0.2, 3.0),
    "store_forward": (0.9, 9.0),
    "other_forward": (0.9, 9.0),
    "failed_forward": (5.0, 60.0),
    "aliased": (2.5, 60.0),
    "l1": (2.5, 8.0),
    "l2": (7.0, 50.0),
    "l3": (7.0, 400.0),
    "memory": (50.0, 2000.0),
}
_PLAUSIBLE_PARAMETERS = {
    "mispredict_penalty": (5.0, 60.0),
    "icache_miss_penalty": (0.0, 60.0),
    "outstanding_misses": (2, 200),
    "dispatch_width": (2, 8),
}
# Memory levels, nearest first. On a machine without a third level, "l3" measures the second.
_LEVELS = ("l1", "l2", "l3", "memory")
# The middle 80% of a load's samples must be within this factor of its value.
_STEADY = 1.5


class CalibrationError(UserError):
    """This machine cannot be calibrated; the message gives the reason."""


@dataclass(frozen=True)
class CycleRange:
    """Core cycles: the lower quartile of samples, and the range of the middle 80%."""

    value: float
    low: float
    high: float

    @classmethod
    def from_samples(cls, samples: Sequence[float]) -> "CycleRange":
        """Computes the quantiles of samples in any order."""
        ordered = sorted(samples)
        last = len(ordered) - 1
        low, value, high = (ordered[round(q * last)] for q in (_LOW, _VALUE, _HIGH))
        return cls(value, low, high)


def calibrate(
    output: Path, repetitions: int = 101, allow_implausible: bool = False
) -> dict[str, Any]:
    """Writes a CPU file of this machine, and returns its content.

    Args:
      output: file to write.
      repetitions: number of samples of each measurement.
      allow_implausible: whether implausible measurements are written, too.

    Raises:
      CalibrationError: this is not an x86-64 machine; its cache sizes are unknown; or measurements
        are implausible, as on a busy machine.
      PmuError: the system does not say who shares the caches.
      CommandError: the benchmark does not compile or run.
    """
    sizes = _cache_sizes(_CACHES)
    with tempfile.TemporaryDirectory(prefix="calibrate-") as folder:
        program = Path(folder) / "calibration"
        run_command([stock_tool("clang"), "-O2", SOURCE, "-o", program])
        buffers = buffer_sizes(sizes)
        printed = run_command([program, str(repetitions), *map(str, buffers)]).stdout
    measurements = read_measurements(printed)
    if os.getloadavg()[0] > 0.5 * len(os.sched_getaffinity(0)):
        logging.warning(
            "The machine is busy: third-level cache and memory appear too slow; measure again later"
        )
    doubts = implausible(measurements)
    if doubts and not allow_implausible:
        raise CalibrationError(
            f"{output}: not written, because measurements are implausible:\n  "
            + "\n  ".join(doubts)
            + "\nMeasure again when nothing else runs, or take a CPU file of the package "
            "(--cpu=host or its name); --force writes the file all the same"
        )
    for doubt in doubts:
        logging.warning("implausible: %s", doubt)
    cpu = {
        "format": FORMAT,
        "version": VERSION,
        "name": _model_name(Path("/proc/cpuinfo")),
        "mcpu": host_cpu(),
        "last_level": str(host_geometry().ll),
        "parameters": parameters(measurements),
        "measurements": {
            name: {"value": m.value, "low": m.low, "high": m.high}
            for name, m in measurements.items()
        },
    }
    write_json(output, cpu)
    return cpu


def implausible(measurements: Mapping[str, CycleRange]) -> list[str]:
    """Describes measurements that are implausible or unsteady, one sentence each."""
    doubts = []
    found = {name: measurements[name].value for name in _PLAUSIBLE}
    computed = parameters(measurements)
    found |= {name: computed[name]["value"] for name in _PLAUSIBLE_PARAMETERS}
    for name, (low, high) in (_PLAUSIBLE | _PLAUSIBLE_PARAMETERS).items():
        if not low <= found[name] <= high:
            doubts.append(f"{name}: {found[name]:.3g}; expected {low:g} to {high:g}")
    for near, far in pairwise(_LEVELS):
        if found[far] < 0.9 * found[near]:
            doubts.append(
                f"{far}: {found[far]:.3g} cycles, less than {near} with {found[near]:.3g}"
            )
    for name in _LEVELS:
        measured = measurements[name]
        if measured.high > _STEADY * measured.value or measured.low < measured.value / _STEADY:
            doubts.append(
                f"{name}: unsteady, {measured.low:.3g} to {measured.high:.3g} cycles around "
                f"{measured.value:.3g}"
            )
    return doubts


def summary(cpu: Mapping[str, Any]) -> str:
    """The parameters of a CPU file as a table."""
    lines = [f"{cpu['name']} ({cpu['mcpu']}); cycles of the core, with the range of most samples"]
    for name, parameter in cpu["parameters"].items():
        spread = f"{parameter['low']:g} to {parameter['high']:g}" if "low" in parameter else ""
        lines.append(f"{name:22} {parameter['value']:8g}  {spread:20} {parameter['source']}")
    return "\n".join(lines) + "\n"


def buffer_sizes(caches: Mapping[int, int]) -> list[int]:
    """Buffer sizes for dependent loads from each cache level and from memory, in bytes.

    A buffer fits its level with room for other data, such as another hardware thread's. It does
    not fit the next nearer level. Up to the second level it also fits the first-level TLB.

    Args:
      caches: cache level -> its size in bytes.
    """
    l1, l2 = caches[1], caches[2]
    last = caches.get(3, l2)
    return [l1 // 8, 4 * l1, min(4 * l2, last // 2) if last > l2 else l2, max(4 * last, 1 << 28)]


def read_measurements(printed: str) -> dict[str, CycleRange]:
    """Reads the benchmark's output, a line "NAME CYCLES" for each sample."""
    samples: dict[str, list[float]] = defaultdict(list)
    for line in printed.splitlines():
        name, _, cycles = line.partition(" ")
        samples[name].append(float(cycles))
    return {name: CycleRange.from_samples(values) for name, values in samples.items()}


def parameters(m: Mapping[str, CycleRange]) -> dict[str, dict[str, Any]]:
    """Computes the parameters of a CPU file from the measurements of calibration.c."""

    def measured(measurement: CycleRange, what: str) -> dict[str, Any]:
        return {
            "value": round(measurement.value, 3),
            "low": round(measurement.low, 3),
            "high": round(measurement.high, 3),
            "source": f"measured: {what}",
        }

    def combined(value: float, what: str, *parts: tuple[CycleRange, float]) -> dict[str, Any]:
        low = sum(min(f * (p.low - p.value), f * (p.high - p.value)) for p, f in parts)
        high = sum(max(f * (p.low - p.value), f * (p.high - p.value)) for p, f in parts)
        return measured(CycleRange(value, value + low, value + high), what)

    # Half of the random branches are mispredicted. After a mispredict, the loop's next branch waits
    # for its load and test; the simulation models this wait itself, so it is subtracted.
    usual = (m["branch_taken"].value + m["branch_not_taken"].value) / 2
    after = m["l1"].value + 3
    mispredict = 2 * (m["branch_random"].value - usual) + usual - after
    return {
        "l1_latency": measured(m["l1"], "dependent loads, first level"),
        "l2_latency": measured(m["l2"], "dependent loads, second level"),
        "l3_latency": measured(m["l3"], "dependent loads, third level"),
        "memory_latency": measured(m["memory"], "dependent loads, memory"),
        "outstanding_misses": {
            "value": max(1, round(m["memory"].value / m["memory_independent"].value)),
            "low": round(m["memory"].low / m["memory_independent"].high, 3),
            "high": round(m["memory"].high / m["memory_independent"].low, 3),
            "source": "measured: dependent against independent loads, memory",
        },
        "store_forward_latency": combined(
            max(0.0, m["store_forward"].value - 1),
            "chain of a store, a load of the same stack slot and an addition, less that",
            (m["store_forward"], 1),
        ),
        "other_forward_latency": combined(
            max(0.0, m["other_forward"].value - 1),
            "chain of a store, a load of the same memory and an addition, less that",
            (m["other_forward"], 1),
        ),
        "failed_forward_latency": combined(
            max(0.0, m["failed_forward"].value - 1),
            "chain of two stores, a load of what both wrote and an addition, less that",
            (m["failed_forward"], 1),
        ),
        "alias_4k_latency": combined(
            max(0.0, m["aliased"].value - m["unaliased"].value),
            "chain of loads behind stores to the same place of another page, less that behind "
            "stores to another place",
            (m["aliased"], 1),
            (m["unaliased"], -1),
        ),
        "mispredict_penalty": combined(
            mispredict,
            "random against constant branches on loaded values",
            (m["branch_random"], 2),
            (m["branch_taken"], -0.5),
            (m["branch_not_taken"], -0.5),
        ),
        "icache_miss_penalty": combined(
            m["jump_in_l2"].value - m["jump_in_l1"].value,
            "jumps through 2048 lines of code against 128",
            (m["jump_in_l2"], 1),
            (m["jump_in_l1"], -1),
        ),
        "dispatch_width": {
            # The loop comes close to the width, but never reaches it.
            "value": max(1, math.ceil(1 / m["nop"].value - 0.1)),
            "low": round(1 / m["nop"].high, 3),
            "high": round(1 / m["nop"].low, 3),
            "source": "measured: instructions without effect a cycle",
        },
        "move_elimination": {
            # In a chain, moves that are not eliminated take a cycle each.
            "value": int(m["move"].value < 0.7),
            "source": f"measured: {m['move'].value:.2f} cycles a move in a chain of them",
        },
        "immediate_addition": {
            "value": int(m["immediate_addition"].value < 0.7),
            "source": f"measured: {m['immediate_addition'].value:.2f} cycles an addition of 1 in a "
            "chain of them",
        },
        "stack_engine": {
            # Pops that wait for one another take at least a cycle each.
            "value": int(m["pop"].value < 0.9),
            "source": f"measured: {m['pop'].value:.2f} cycles a pop",
        },
    }


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Cache level -> size of its data or unified cache, in bytes."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        kind = (index / "type").read_text().strip()
        size = re.fullmatch(r"(\d+)K", (index / "size").read_text().strip())
        if kind != "Instruction" and size:
            sizes[int((index / "level").read_text())] = int(size[1]) << 10
    if not {1, 2} <= sizes.keys():
        raise CalibrationError(
            f"{folder}: the system does not report cache sizes; use a CPU file of the package, or "
            "write one (docs/reference/formats.md)"
        )
    return sizes


def _model_name(cpuinfo: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
    if not found:
        raise CalibrationError(f"{cpuinfo}: no CPU model; only x86-64 can be measured")
    return found[1].strip()
