# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The size of a linked program's code, without libraries.

Several objects may hold copies of one function (COMDATs: inline functions, templates). The linker
keeps one copy, so the linked size is what users pay for.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.command import run_command

_TIMEOUT_S = 600.0


def linked_text_bytes(objects: Sequence[Path], linker: Path) -> int:
    """Links objects into one static image, and returns its bytes of machine code.

    Every object counts, whether or not the image can run. Library functions stay undefined. Of
    functions that clash, such as `main` of two tools of a package, the first is kept.

    Args:
      objects: object files.
      linker: ld.lld.

    Raises:
      CommandError: the linker failed.
      ObjectFileError: the linker left a damaged file.
    """
    with tempfile.TemporaryDirectory(prefix="linked-") as name:
        image = Path(name) / "image"
        options = ["--unresolved-symbols=ignore-all", "--noinhibit-exec", "--entry=0"]
        options += ["-z", "muldefs", "--no-gc-sections", "--icf=none"]
        run_command([linker, *options, "-o", image, *objects], timeout_s=_TIMEOUT_S)
        return text_bytes(image)
