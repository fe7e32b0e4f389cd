# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds a program of known behaviour once, for the tests here and in rooms above."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

SOURCE = Path(__file__).parent / "testdata" / "workload.c"

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def source() -> Path:
    """The program's source file."""
    return SOURCE


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles the program with other flags: build("-no-pie", debug="-g1")."""

    def compile_it(*flags: str, debug: str = PROFILING_FLAGS, name: str = "workload") -> Path:
        binary = tmp_path_factory.mktemp("build") / name
        run_command(
            [
                stock_tool("clang"),
                "-O2",
                "-Wl,--build-id",
                *shlex.split(debug),
                *flags,
                SOURCE,
                "-o",
                binary,
            ],
            timeout_s=120,
        )
        return binary

    return compile_it


@pytest.fixture(scope="session")
def workload(build: Build) -> Path:
    """The program, built as docs/collect.md says."""
    return build()


@pytest.fixture(scope="session")
def line_of() -> Callable[[str], int]:
    """Finds the number of the source line with a mark."""

    def find(mark: str) -> int:
        lines = SOURCE.read_text(encoding="utf-8").splitlines()
        return next(i for i, line in enumerate(lines, 1) if line.endswith(f"// mark: {mark}"))

    return find
