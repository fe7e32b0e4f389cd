# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds tools of the distribution's unpatched LLVM."""

from pathlib import Path

from compiler_opt_perf.run.errors import UserError

LLVM_VERSION = "22.1.8"
LLVM_MAJOR = LLVM_VERSION.split(".")[0]

# Headers, static archives and tools.
LLVM_PREFIX = Path("/usr/lib") / f"llvm-{LLVM_MAJOR}"


class MissingToolError(UserError):
    """A program of the distribution's LLVM is not installed."""


def stock_tool(name: str) -> Path:
    """A program of the distribution's LLVM, for example llvm-profdata.

    Raises:
      MissingToolError: it is not installed.
    """
    path = LLVM_PREFIX / "bin" / name
    if not path.is_file():
        raise MissingToolError(
            f"{path}: no such program; run tools/bootstrap (or apt-get install llvm-{LLVM_MAJOR} "
            f"clang-{LLVM_MAJOR} lld-{LLVM_MAJOR})"
        )
    return path
