# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds and traces a program with known executed blocks once for all tests here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.trace.qemu import record
from compiler_opt_perf.trace.trace_file import Trace

SOURCE = Path(__file__).parent / "testdata" / "program.c"

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles the program with other flags: build("-no-pie", name="other")."""

    def compile_it(
        *flags: str, name: str = "program", map_flag: str = "-fbasic-block-address-map"
    ) -> Path:
        binary = tmp_path_factory.mktemp("build") / name
        command = [str(stock_tool("clang")), "-O2", "-fuse-ld=lld", "-Wl,--build-id", *flags]
        options = [option for option in (map_flag,) if option]
        run_command([*command, *options, SOURCE, "-ldl", "-lpthread", "-o", binary], timeout_s=120)
        return binary

    return compile_it


@pytest.fixture(scope="session")
def program(build: Build) -> Path:
    """The program, built as docs/trace.md says."""
    return build()


@pytest.fixture(scope="session")
def trace(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A trace of more than one record."""
    return record(program, ["turn", "60000"], tmp_path_factory.mktemp("trace") / "turn.bbtrace")
