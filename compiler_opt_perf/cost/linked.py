# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The size of a linked program's code, without libraries, and what its linker folds.

Several objects may hold copies of one function (COMDATs: inline functions, templates). The linker
keeps one copy, so the linked size is what users pay for. With `--icf=safe` it folds functions whose
code is the same and whose address nobody compares: it keeps one of them, too.
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.cost.size import function_sizes, text_bytes
from compiler_opt_perf.run.command import run_command

_TIMEOUT_S = 600.0
_FOLDED = re.compile(
    r"^(?P<first>selected|  removing identical) section (?P<object>.*):"
    r"\(\.text\.((unlikely|hot|startup|exit|outlined)\.)?(?P<function>.+)\)$",
    re.MULTILINE,
)


def linked_text_bytes(objects: Sequence[Path], linker: Path, *, fold: bool = False) -> int:
    """Links objects into one static image, and returns its bytes of machine code.

    Every object counts, whether or not the image can run. Library functions stay undefined. Of
    functions that clash, such as `main` of two tools of a package, the first is kept.

    Args:
      objects: object files.
      linker: ld.lld.
      fold: whether it folds functions.

    Raises:
      CommandError: the linker failed.
      ObjectFileError: the linker left a damaged file.
    """
    with tempfile.TemporaryDirectory(prefix="linked-") as name:
        image = Path(name) / "image"
        _link(objects, linker, image, "--icf=safe" if fold else "--icf=none")
        return text_bytes(image)


def folded_functions(objects: Sequence[Path], linker: Path) -> dict[str, int]:
    """By function, how many the linker folds into one with it, itself included.

    Functions are called as `function_sizes` calls them.

    Raises:
      CommandError: the linker failed.
      ObjectFileError: an object is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="folded-") as name:
        said = _link(objects, linker, Path(name) / "image", "--icf=safe", "--print-icf-sections")
    aliases: dict[str, str] = {}
    for one in objects:
        aliases |= function_sizes(one).aliases
    groups: list[list[str]] = []
    for found in _FOLDED.finditer(said):
        if found["first"] == "selected":
            groups.append([])
        groups[-1].append(aliases.get(found["function"], found["function"]))
    return {function: len(group) for group in groups for function in group}


def _link(objects: Sequence[Path], linker: Path, image: Path, *options: str) -> str:
    """Links objects; returns what the linker prints."""
    words = ["--unresolved-symbols=ignore-all", "--noinhibit-exec", "--entry=0"]
    words += ["-z", "muldefs", "--no-gc-sections", *options]
    return run_command([linker, *words, "-o", image, *objects], timeout_s=_TIMEOUT_S).stdout
