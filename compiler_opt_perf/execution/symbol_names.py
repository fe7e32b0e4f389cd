# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linkage names as people read them."""

import tempfile
from collections.abc import Sequence

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool


def printable(text: str) -> str:
    """The text without what would move a terminal's cursor or change its colours."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def demangled(names: Sequence[str]) -> dict[str, str]:
    """Names as they stand in the source, by linkage name. Raises CommandError."""
    # A name of several lines could not be told from several names.
    told = [name for name in names if name.isprintable()]
    result = {name: printable(name) for name in names}
    if not told:
        return result
    with tempfile.TemporaryFile() as questions:
        questions.write("".join(f"{name}\n" for name in told).encode())
        questions.seek(0)
        printed = run_command([stock_tool("llvm-cxxfilt")], stdin=questions, timeout_s=60).stdout
    return result | dict(zip(told, printed.split("\n"), strict=False))
