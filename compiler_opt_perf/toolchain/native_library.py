# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""C libraries of this package, which are compiled when first needed."""

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
    """The library of one C file; compiles it where that has not been done.

    Args:
      headers: beside it, that it includes.
      libraries: what the linker is told of others, as "-lzstd".

    Raises:
      CommandError: it does not compile.
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
