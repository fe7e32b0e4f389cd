# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the present CPU for the evaluators of cycles, without performance counters."""

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
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import write_json
from compiler_opt_perf.run.llvm import stock_tool

FORMAT = "compiler-opt-perf/cpu"
VERSION = 1
SOURCE = Path(__file__).with_name("calibration.c")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Quantiles of a measurement's samples. Whatever else runs on the machine makes them larger, but for
# the few in which it disturbed the chains of additions instead.
_LOW, _VALUE, _HIGH = 0.1, 0.25, 0.9
# Cycles of measurements on x86-64 CPUs with out-of-order cores, and what is computed from them,
# with room for those to come: a multiplication of 64 bits takes 3 or 4, what is done when registers
# are renamed at most 1, and none known renames more than 8 instructions a cycle.
_PLAUSIBLE = {
    "multiplication": (2.7, 4.4),
    "immediate_addition": (0.1, 1.2),
    "move": (0.1, 1.2),
    "pop": (0.2, 3.0),
    "store_forward": (0.9, 9.0),
    "other_forward": (0.9, 9.0),
    "failed_forward": (5.0, 60.0),
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
# Loads that go further take longer; a machine without a third level has two of the second.
_LEVELS = ("l1", "l2", "l3", "memory")
# The middle 80% of the samples of a load are within this factor of its value.
_STEADY = 1.5


class CalibrationError(UserError):
    """This machine cannot be measured; the message says why."""


@dataclass(frozen=True)
class CycleRange:
    """Core cycles: the lower quartile of the samples, and the range of the middle 80%."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "CycleRange":
        """Those of samples in any order."""
        ordered = sorted(samples)
        last = len(ordered) - 1
        low, value, high = (ordered[round(q * last)] for q in (_LOW, _VALUE, _HIGH))
        return cls(value, low, high)


def calibrate(
    output: Path, repetitions: int = 101, allow_implausible: bool = False
) -> dict[str, Any]:
    """Writes a CPU file of the present machine, and returns what is in it.

    Args:
      repetitions: samples of each measurement.
      allow_implausible: write what was measured, even if no CPU known is like that.

    Raises:
      CalibrationError: not an x86-64 machine, or one whose caches the system does not tell; or what
        was measured is implausible, as it may be when the machine is busy.
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
            "The machine is busy: the third level and memory come out too slow; measure again later"
        )
    doubts = implausible(measurements)
    if doubts and not allow_implausible:
        raise CalibrationError(
            f"{output}: not written, for what was measured is implausible:\n  "
            + "\n  ".join(doubts)
            + "\nMeasure again when nothing else runs, or take a CPU file of the package "
            "(--cpu=host or its name); --force writes it all the same"
        )
    for doubt in doubts:
        logging.warning("implausible: %s", doubt)
    cpu = {
        "format": FORMAT,
        "version": VERSION,
        "name": _model_name(Path("/proc/cpuinfo")),
        "mcpu": host_cpu(),
        "parameters": parameters(measurements),
        "measurements": {
            name: {"value": m.value, "low": m.low, "high": m.high}
            for name, m in measurements.items()
        },
    }
    write_json(output, cpu)
    return cpu


def implausible(measurements: Mapping[str, CycleRange]) -> list[str]:
    """What of the measurements no CPU known does, or what was unsteady; a sentence each."""
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
        one = measurements[name]
        if one.high > _STEADY * one.value or one.low < one.value / _STEADY:
            doubts.append(
                f"{name}: unsteady, {one.low:.3g} to {one.high:.3g} cycles around {one.value:.3g}"
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
    """Bytes to follow pointers through, for each level and for memory.

    Small enough to fit a level in spite of what else is there, such as what another thread of the
    same core has there, large enough not to fit the level below, and, up to the second level, for
    the first level of address translation.
    """
    l1, l2 = caches[1], caches[2]
    last = caches.get(3, l2)
    return [l1 // 8, 4 * l1, min(4 * l2, last // 2) if last > l2 else l2, max(4 * last, 1 << 28)]


def read_measurements(printed: str) -> dict[str, CycleRange]:
    """Reads what the benchmark prints, a line "NAME CYCLES" for each sample."""
    samples: dict[str, list[float]] = defaultdict(list)
    for line in printed.splitlines():
        name, _, cycles = line.partition(" ")
        samples[name].append(float(cycles))
    return {name: CycleRange.of(values) for name, values in samples.items()}


def parameters(m: Mapping[str, CycleRange]) -> dict[str, dict[str, Any]]:
    """The parameters of a CPU file, from the measurements of calibration.c."""

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

    # Half of the random branches are mispredicted. After one, the next branch of the loop is
    # dispatched, waits for its load and its test, and is executed; the simulation does that itself.
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
            # The loop never reaches the width, and comes near to it.
            "value": max(1, math.ceil(1 / m["nop"].value - 0.1)),
            "low": round(1 / m["nop"].high, 3),
            "high": round(1 / m["nop"].low, 3),
            "source": "measured: instructions without effect a cycle",
        },
        "move_elimination": {
            # Moves that are executed take a cycle each in a chain.
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
    """Bytes of the data or unified cache of each level."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        kind = (index / "type").read_text().strip()
        size = re.fullmatch(r"(\d+)K", (index / "size").read_text().strip())
        if kind != "Instruction" and size:
            sizes[int((index / "level").read_text())] = int(size[1]) << 10
    if not {1, 2} <= sizes.keys():
        raise CalibrationError(
            f"{folder}: the system does not tell the sizes of the caches; use a CPU file of "
            "the package, or write one (docs/reference/formats.md)"
        )
    return sizes


def _model_name(cpuinfo: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
    if not found:
        raise CalibrationError(f"{cpuinfo}: names no CPU model; only x86-64 can be measured")
    return found[1].strip()
