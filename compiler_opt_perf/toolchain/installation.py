# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A built compiler, and the files that must be beside it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.toolchain.aot import package_directory
from compiler_opt_perf.toolchain.layout import ToolchainError


@dataclass(frozen=True)
class Toolchain:
    """The patched tools with one set of models compiled in.

    Attributes:
      directory: `build/toolchain/<set>`.
      clang: the compiler driver; it finds its headers by itself.
      opt: the IR optimiser.
      llc: the code generator.
      litert_library: evaluator of development mode, for `-litert-library` or the environment
        variable LLVM_LITERT_LIBRARY.
    """

    directory: Path
    clang: Path
    opt: Path
    llc: Path
    litert_library: Path

    @property
    def llvm_lto2(self) -> Path:
        """llvm-lto2: link-time optimisation in one process, with a given number of threads."""
        return self.directory / "bin" / "llvm-lto2"

    @property
    def ld_lld(self) -> Path:
        """The linker, which `clang -fuse-ld=lld` finds; its link-time optimisation has the models.

        See docs/thinlto.md.
        """
        return self.directory / "bin" / "ld.lld"

    @property
    def trace_cost(self) -> Path:
        """llvm-trace-cost, which predicts what code costs (docs/cost.md)."""
        return self.directory / "bin" / "llvm-trace-cost"

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Finds the tools in `directory`.

        Raises:
          ToolchainError: one of them is missing.
        """
        bin_directory = directory.absolute() / "bin"
        tools = {tool: bin_directory / tool for tool in ("clang", "opt", "llc")}
        for path in tools.values():
            if not os.access(path, os.X_OK):
                raise ToolchainError(
                    f"{path}: no such program; build it with "
                    f"build/venv/bin/cop toolchain build --set={directory.name}"
                )
        if not (directory / "lib" / "clang").exists():
            raise ToolchainError(
                f"{directory / 'lib' / 'clang'}: clang's own headers are missing; run "
                "tools/bootstrap, which installs the distribution's clang"
            )
        return cls(directory.absolute(), litert_library=litert_library(), **tools)


def litert_library() -> Path:
    """LiteRT's shared library, in the Python package.

    Raises:
      ToolchainError: it is not installed.
    """
    path = package_directory("ai_edge_litert") / "libLiteRt.so"
    if not path.is_file():
        raise ToolchainError(
            f"{path}: LiteRT is missing; remove build/venv and run tools/bootstrap"
        )
    return path
