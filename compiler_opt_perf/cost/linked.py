# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a linked program, without libraries: what users pay for.

Objects have functions that other objects of the program have, too (COMDATs: inline functions,
templates); the linker keeps one of each.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.command import run_command

_TIMEOUT_S = 600.0


def linked_text_bytes(objects: Sequence[Path], linker: Path) -> int:
    """Bytes of machine code of the objects linked into one static image.

    What they need of libraries stays undefined, and of two functions with one name that cannot be
    linked together, such as `main` of two tools of a package, the first is taken: every object
    counts, whether or not the program can run.

    Args:
      linker: ld.lld.

    Raises:
      CommandError: the linker failed.
      ObjectFileError: it left a damaged file.
    """
    with tempfile.TemporaryDirectory(prefix="linked-") as name:
        image = Path(name) / "image"
        options = ["--unresolved-symbols=ignore-all", "--noinhibit-exec", "--entry=0"]
        options += ["-z", "muldefs", "--no-gc-sections", "--icf=none"]
        run_command([linker, *options, "-o", image, *objects], timeout_s=_TIMEOUT_S)
        return text_bytes(image)
