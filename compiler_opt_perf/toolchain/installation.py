# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds a built compiler with its tools and libraries."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.run.files import is_folder_name
from compiler_opt_perf.toolchain.aot import package_directory
from compiler_opt_perf.toolchain.layout import BUILD, ToolchainError

# Sets whose models are fixed: dev has none, mock has upstream's mock models.
DEVELOPMENT_SET = "dev"
MOCK_SET = "mock"
# The name in advice where the folder's own name is no name of a set.
_NEW_SET = "candidate"


@dataclass(frozen=True)
class Toolchain:
    """The patched tools with one set of models compiled in.

    Attributes:
      directory: `build/toolchain/<set>`.
      clang: the compiler driver; it finds its headers by itself.
      opt: the IR optimiser.
      llc: the code generator.
      litert_library: LiteRT, which evaluates models in development mode; for `-litert-library`
        or the environment variable LLVM_LITERT_LIBRARY.
    """

    directory: Path
    clang: Path
    opt: Path
    llc: Path
    litert_library: Path

    @property
    def llvm_lto2(self) -> Path:
        """llvm-lto2, which does link-time optimisation in one process with N threads."""
        return self.directory / "bin" / "llvm-lto2"

    @property
    def ld_lld(self) -> Path:
        """The linker for `clang -fuse-ld=lld`; its link-time optimisation has the models.

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
          ToolchainError: a tool, clang's headers or LiteRT is missing, or the tools are of another
            LLVM.
        """
        bin_directory = directory.absolute() / "bin"
        tools = {tool: bin_directory / tool for tool in ("clang", "opt", "llc")}
        if directory.is_file():
            raise ToolchainError(
                f"{directory}: is a file; name the folder that has bin/clang in it, or "
                f"{build_advice(directory, {})}"
            )
        for path in tools.values():
            if not os.access(path, os.X_OK):
                raise ToolchainError(f"{path}: no such program; {build_advice(directory, {})}")
        if not (directory / "lib" / "clang").exists():
            raise ToolchainError(
                f"{directory / 'lib' / 'clang'}: clang's own headers are missing; run "
                "tools/bootstrap, which installs the distribution's clang"
            )
        if not (directory / "models").is_dir():
            raise ToolchainError(
                f"{directory}: is another LLVM, not one with the patches of this project; "
                f"{build_advice(directory, {})}"
            )
        return cls(directory.absolute(), litert_library=litert_library(), **tools)


def build_advice(directory: Path, models: Mapping[str, str | Path]) -> str:
    """Advice for messages: the command that builds the set in `directory` with models.

    Args:
      directory: the set's folder, which need not exist.
      models: folders of policies by option, such as "--inline-model"; if empty, the advice has a
        placeholder.
    """
    fixed = directory.name in (DEVELOPMENT_SET, MOCK_SET)
    # What is there and is not ours is not to be replaced.
    foreign = directory.exists() and not (directory / "models").is_dir()
    if (fixed and models) or foreign or not is_folder_name(directory.name):
        directory = BUILD / "toolchain" / _NEW_SET
    if not fixed and not models:
        models = {"--inline-model": "POLICY"}
    words = ["cop", "toolchain", "build", f"--toolchain={directory.name}"]
    words += [f"{option}={model}" for option, model in models.items()]
    if directory.absolute() != BUILD / "toolchain" / directory.name:
        words.append(f"--output={directory}")
    return f"build it with `{shlex.join(words)}`, in {directory}"


def litert_library() -> Path:
    """LiteRT's shared library, which the Python package brings.

    Raises:
      ToolchainError: the library is not installed.
    """
    path = package_directory("ai_edge_litert") / "libLiteRt.so"
    if not path.is_file():
        raise ToolchainError(
            f"{path}: LiteRT is missing; remove build/venv and run tools/bootstrap"
        )
    return path
