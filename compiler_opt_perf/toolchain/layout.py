# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The repository's folders, and the base class of the toolchain's errors."""

from pathlib import Path

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import is_folder_name
from compiler_opt_perf.run.llvm import LLVM_VERSION

REPO_ROOT = Path(__file__).resolve().parents[2]
BUILD = REPO_ROOT / "build"
PATCHES = REPO_ROOT / "llvm_patches" / LLVM_VERSION
OVERLAY_PROJECT = REPO_ROOT / "tools" / "overlay"


class ToolchainError(UserError):
    """A step of fetching, patching or building failed; the message says where and what to do."""


def set_folder(name: str, build: Path = BUILD) -> Path:
    """The folder of a model set, `build/toolchain/<name>`.

    Raises:
      ToolchainError: the name cannot be a folder's name.
    """
    if not is_folder_name(name):
        raise ToolchainError(
            f"{name!r}: a model set's name holds letters, digits and '_', '.', '-' only, and "
            "begins with none of the last two"
        )
    return build / "toolchain" / name
