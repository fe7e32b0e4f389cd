# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the package's C libraries on first use."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from absl import logging

from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import atomic_write, exclusive
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.toolchain.layout import BUILD

_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")


def native_library(
    source: Path, headers: Sequence[Path] = (), libraries: Sequence[str] = ()
) -> Path:
    """The shared library of one C file, which is compiled if needed.

    Args:
      source: the C file.
      headers: headers that it includes; a change of one compiles it again.
      libraries: options that link other libraries, such as "-lzstd".

    Raises:
      CommandError: the compilation fails.
    """
    key = hashlib.sha256(" ".join((*_FLAGS, *libraries)).encode())
    for path in (source, *headers):
        key.update(path.read_bytes())
    output = BUILD / "native" / key.hexdigest()[:16] / f"{source.stem}.so"
    if output.exists():
        return output
    with exclusive(BUILD / "native.lock"):
        if not output.exists():
            logging.info("compiling %s", source)
            with atomic_write(output) as temporary:
                run_command(
                    [stock_tool("clang"), *_FLAGS, source, *libraries, "-o", temporary],
                    timeout_s=120,
                )
    return output
