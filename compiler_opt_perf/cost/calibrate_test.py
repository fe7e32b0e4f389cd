# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The calibration of this machine, without demands on how quiet it is."""

import json
from pathlib import Path

import pytest

from compiler_opt_perf.cost.calibrate import (
    FORMAT,
    VERSION,
    CalibrationError,
    Measurement,
    _cache_sizes,
    buffer_sizes,
    calibrate,
    parameters,
    read_measurements,
    summary,
)
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.toolchain.installation import Toolchain

CPUS = Path(__file__).parent / "cpus"
REQUIRED = {
    "l1_latency",
    "memory_latency",
    "store_forward_latency",
    "mispredict_penalty",
    "icache_miss_penalty",
    "dispatch_width",
    "stack_engine",
}


def test_measures_this_machine_and_writes_a_cpu_file(tmp_path: Path, toolchain: Toolchain) -> None:
    cpu = calibrate(tmp_path / "cpu.json", repetitions=11)
    assert json.loads((tmp_path / "cpu.json").read_text()) == cpu
    assert cpu["parameters"].keys() >= REQUIRED
    # Of any x86-64 CPU, however busy: multiplication takes several additions, and memory longer
    # than the first level.
    measured = cpu["measurements"]
    assert measured["multiplication"]["value"] > 1.5
    assert cpu["parameters"]["memory_latency"]["value"] > cpu["parameters"]["l1_latency"]["value"]
    for m in measured.values():
        assert m["low"] <= m["value"] <= m["high"]
    text = summary(cpu)
    assert all(name in text for name in REQUIRED)
    # The tool accepts the CPU file, and refuses what comes after it.
    with pytest.raises(CommandError, match=r"none\.o"):
        run_command(
            [toolchain.trace_cost, f"-cpu={tmp_path / 'cpu.json'}", "-trace=none", "none.o"]
        )


def test_parameters_come_from_differences() -> None:
    names = "l1 l2 l3 memory memory_independent store_forward nop pop move immediate_addition"
    printed = "".join(f"{name} {value}\n" for name in names.split() for value in (1, 2, 3, 4, 5))
    printed += "branch_taken 2\nbranch_not_taken 4\nbranch_random 13\n"
    printed += "jump_in_l1 2\njump_in_l2 16\n"
    found = parameters(read_measurements(printed))
    # 2 * (13 - 3) for a mispredicted branch, and the loop's 3 less the 2 + 3 that its next takes.
    assert found["mispredict_penalty"]["value"] == 18
    assert found["icache_miss_penalty"]["value"] == 14
    assert found["stack_engine"]["value"] == 0
    assert found["dispatch_width"]["value"] == 1
    assert found["l1_latency"] | {"source": ""} == {
        "value": 2,
        "low": 1,
        "high": 5,
        "source": "",
    }


def test_takes_the_lower_quartile() -> None:
    assert Measurement.of(range(100, -1, -1)) == Measurement(25, 10, 90)


def test_buffers_fit_their_level_and_no_other() -> None:
    l1, l2, l3, memory = buffer_sizes({1: 32 << 10, 2: 1 << 20, 3: 32 << 20})
    assert l1 <= 32 << 10 < l2 <= 1 << 20 < l3 <= 16 << 20 and memory >= 8 * (32 << 20)


def test_a_system_that_hides_its_caches_is_named(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=str(tmp_path)):
        _cache_sizes(tmp_path)


@pytest.mark.parametrize("path", sorted(CPUS.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_files_say_where_numbers_are_from(path: Path) -> None:
    cpu = json.loads(path.read_text())
    assert (cpu["format"], cpu["version"]) == (FORMAT, VERSION)
    assert cpu["parameters"].keys() >= REQUIRED
    for name, parameter in cpu["parameters"].items():
        assert len(parameter["source"]) > 10, name
