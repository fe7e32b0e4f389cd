# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the present CPU for the evaluators of cycles, without performance counters."""

import math
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.files import write_json
from compiler_opt_perf.execution.llvm import stock_tool

FORMAT = "compiler-opt-perf/cpu"
VERSION = 1
SOURCE = Path(__file__).with_name("calibration.c")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Quantiles of a measurement's samples. Whatever else runs on the machine makes them larger, but for
# the few in which it disturbed the chains of additions instead.
_LOW, _VALUE, _HIGH = 0.1, 0.25, 0.9
# Cycles that a multiplication of 64 bits takes on x86-64 CPUs with out-of-order cores: 3 or 4.
_MULTIPLICATION = (2.7, 4.4)


class CalibrationError(Exception):
    """This machine cannot be measured; the message says why."""


@dataclass(frozen=True)
class Measurement:
    """Core cycles: the lower quartile of the samples, and the range of the middle 80%."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Measurement":
        """Those of samples in any order."""
        ordered = sorted(samples)
        last = len(ordered) - 1
        low, value, high = (ordered[round(q * last)] for q in (_LOW, _VALUE, _HIGH))
        return cls(value, low, high)


def calibrate(output: Path, repetitions: int = 101) -> dict[str, Any]:
    """Writes a CPU file of the present machine, and returns what is in it.

    Args:
      repetitions: samples of each measurement.

    Raises:
      CalibrationError: not an x86-64 machine, or one whose caches the system does not tell.
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
        logging.warning("The machine is busy: caches and pipelines are shared; measure again later")
    if not _MULTIPLICATION[0] <= measurements["multiplication"].value <= _MULTIPLICATION[1]:
        logging.warning(
            "A multiplication came out at %.1f cycles, which it takes on no known CPU: the clock "
            "changed or the machine is shared; measure again",
            measurements["multiplication"].value,
        )
    cpu = {
        "format": FORMAT,
        "version": VERSION,
        "name": _model_name(Path("/proc/cpuinfo")),
        "mcpu": _host_cpu(),
        "parameters": parameters(measurements),
        "measurements": {
            name: {"value": m.value, "low": m.low, "high": m.high}
            for name, m in measurements.items()
        },
    }
    write_json(output, cpu)
    return cpu


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


def read_measurements(printed: str) -> dict[str, Measurement]:
    """Reads what the benchmark prints, a line "NAME CYCLES" for each sample."""
    samples: dict[str, list[float]] = defaultdict(list)
    for line in printed.splitlines():
        name, _, cycles = line.partition(" ")
        samples[name].append(float(cycles))
    return {name: Measurement.of(values) for name, values in samples.items()}


def parameters(m: Mapping[str, Measurement]) -> dict[str, dict[str, Any]]:
    """The parameters of a CPU file, from the measurements of calibration.c."""

    def measured(measurement: Measurement, what: str) -> dict[str, Any]:
        return {
            "value": round(measurement.value, 3),
            "low": round(measurement.low, 3),
            "high": round(measurement.high, 3),
            "source": f"measured: {what}",
        }

    def combined(value: float, what: str, *parts: tuple[Measurement, float]) -> dict[str, Any]:
        low = sum(min(f * (p.low - p.value), f * (p.high - p.value)) for p, f in parts)
        high = sum(max(f * (p.low - p.value), f * (p.high - p.value)) for p, f in parts)
        return measured(Measurement(value, value + low, value + high), what)

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
            "the package, or write one (docs/formats.md)"
        )
    return sizes


def _model_name(cpuinfo: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
    if not found:
        raise CalibrationError(f"{cpuinfo}: names no CPU model; only x86-64 can be measured")
    return found[1].strip()


def _host_cpu() -> str:
    found = re.search(r"Host CPU: (\S+)", run_command([stock_tool("llc"), "--version"]).stdout)
    if not found:
        raise CalibrationError("llc --version does not name the host's CPU")
    return found[1]
