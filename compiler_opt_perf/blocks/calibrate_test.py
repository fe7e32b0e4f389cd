# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The calibration of this machine, without demands on how quiet it is."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from compiler_opt_perf.blocks import calibrate as calibration
from compiler_opt_perf.blocks.calibrate import (
    FORMAT,
    VERSION,
    CalibrationError,
    CycleRange,
    _cache_sizes,
    buffer_sizes,
    calibrate,
    implausible,
    parameters,
    read_measurements,
    summary,
)
from compiler_opt_perf.blocks.cpu_files import caches
from compiler_opt_perf.profile.cpus import host_geometry
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.toolchain.installation import Toolchain

CPUS = Path(__file__).parent / "cpus"
REQUIRED = {
    "l1_latency",
    "memory_latency",
    "store_forward_latency",
    "failed_forward_latency",
    "alias_4k_latency",
    "mispredict_penalty",
    "icache_miss_penalty",
    "dispatch_width",
    "stack_engine",
}


@pytest.mark.compiler
def test_measures_this_machine_and_writes_a_cpu_file(tmp_path: Path, toolchain: Toolchain) -> None:
    cpu = calibrate(tmp_path / "cpu.json", repetitions=11, allow_implausible=True)
    assert json.loads((tmp_path / "cpu.json").read_text()) == cpu
    assert cpu["parameters"].keys() >= REQUIRED
    assert caches(tmp_path / "cpu.json").ll == host_geometry().ll
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
    names = "l1 l2 l3 memory memory_independent store_forward other_forward failed_forward nop"
    names += " aliased unaliased"
    names += " pop move immediate_addition"
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


# Cycles as an AMD EPYC of family 25, model 1, has them.
MEASURED = {
    "nop": 0.18,
    "immediate_addition": 1.0,
    "move": 0.17,
    "alu": 0.26,
    "multiplication": 2.99,
    "load": 0.34,
    "store": 0.5,
    "store_forward": 1.0,
    "other_forward": 1.0,
    "failed_forward": 14.9,
    "aliased": 4.5,
    "unaliased": 4.1,
    "pop": 0.34,
    "l1": 4.07,
    "l2": 12.2,
    "l3": 52.0,
    "memory": 460.0,
    "memory_independent": 26.0,
    "branch_taken": 2.0,
    "branch_not_taken": 1.91,
    "branch_random": 11.82,
    "jump_in_l1": 1.06,
    "jump_in_l2": 4.07,
}


def _measurements(changes: dict[str, CycleRange]) -> dict[str, CycleRange]:
    return {name: CycleRange(v, 0.98 * v, 1.1 * v) for name, v in MEASURED.items()} | changes


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("changes", "doubts"),
    [
        ({}, []),
        # A third level that others fill at times.
        ({"l3": CycleRange(52, 50, 237)}, ["l3: unsteady, 50 to 237 cycles around 52"]),
        ({"memory": CycleRange(584, 200, 600)}, ["memory: unsteady, 200 to 600"]),
        ({"nop": CycleRange(0.09, 0.09, 0.09)}, ["dispatch_width: 12; expected 2 to 8"]),
        (
            {"multiplication": CycleRange(5.1, 5, 5.2)},
            ["multiplication: 5.1; expected 2.7 to 4.4"],
        ),
        ({"branch_random": CycleRange(4, 4, 4)}, ["mispredict_penalty: -"]),
        ({"jump_in_l2": CycleRange(1, 1, 1)}, ["icache_miss_penalty: -0.06; expected 0 to 60"]),
        ({"l2": CycleRange(49, 48, 49), "l3": CycleRange(20, 20, 20)}, ["l3: 20 cycles, less"]),
    ],
)
def test_implausible_measurements_are_not_written(
    changes: dict[str, CycleRange],
    doubts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = _measurements(changes)
    found = implausible(measured)
    assert len(found) == len(doubts)
    assert all(one.startswith(start) for one, start in zip(found, doubts, strict=True))
    monkeypatch.setattr(calibration, "run_command", lambda *_: SimpleNamespace(stdout=""))
    monkeypatch.setattr(calibration, "read_measurements", lambda _: measured)
    output = tmp_path / "cpu.json"
    if doubts:
        with pytest.raises(CalibrationError, match=re.escape(doubts[0])):
            calibrate(output, repetitions=11)
        assert not output.exists()
    calibrate(output, repetitions=11, allow_implausible=bool(doubts))
    assert json.loads(output.read_text())["parameters"] == parameters(measured)


def test_takes_the_lower_quartile() -> None:
    assert CycleRange.from_samples(range(100, -1, -1)) == CycleRange(25, 10, 90)


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
