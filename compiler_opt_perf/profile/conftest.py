# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program of known behaviour, profiled once for all tests of this package."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.binary.conftest import Build, build, line_of, source, workload
from compiler_opt_perf.binary.elf import hide_debug_info
from compiler_opt_perf.profile.callgrind import Cache, CacheGeometry, simulate
from compiler_opt_perf.profile.callgrind_dump import Dump, read_dump
from compiler_opt_perf.profile.collect import collect
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.workload import Run

__all__ = ("Build", "build", "line_of", "source", "workload")

Show = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="session")
def geometry() -> CacheGeometry:
    """Caches smaller than the program's large working set."""
    return CacheGeometry(
        i1=Cache(32768, 8, 64), d1=Cache(32768, 8, 64), ll=Cache(2 * 1024 * 1024, 16, 64)
    )


@pytest.fixture(scope="session")
def profile(
    workload: Path, geometry: CacheGeometry, tmp_path_factory: pytest.TempPathFactory
) -> Manifest:
    """The program's profile."""
    path = tmp_path_factory.mktemp("profile") / "workload.pmu.json"
    collect(workload, ["measure"], path, geometry=geometry, timeout_s=120)
    return Manifest.load(path)


@pytest.fixture(scope="session")
def show() -> Show:
    """Reads a sample profile with LLVM's own reader: function name -> its record."""

    def read(path: Path) -> dict[str, Any]:
        command = [str(stock_tool("llvm-profdata")), "show", "--sample", "--json", str(path)]
        records = json.loads(run_command(command, timeout_s=60).stdout)
        return {record["name"]: record for record in records}

    return read


@pytest.fixture(scope="session")
def real_dump(workload: Path, tmp_path_factory: pytest.TempPathFactory) -> Dump:
    """callgrind's dump of a small run of the program."""
    folder = tmp_path_factory.mktemp("dump")
    program = folder / "workload"
    hide_debug_info(workload, program)
    (path,) = simulate(Run(program, ["repeat", "2"], timeout_s=120), folder, CacheGeometry())
    return read_dump(path, program)
