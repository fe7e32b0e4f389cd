# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""QEMU's user mode, which runs programs for the plugins that count and record them."""

import sys
from pathlib import Path

PROGRAM = "qemu-x86_64"
# Where the system's own QEMU has no plugins, tools/bootstrap unpacks Debian 12's beside the virtual
# environment. Bazel has the environment's folders as links.
_UNPACKED = Path(sys.prefix, "bin").resolve().parents[1] / "qemu"
_LOADER = "/lib64/ld-linux-x86-64.so.2"


def qemu_words() -> list[str]:
    """The words that start a QEMU with plugins, before its options."""
    program = _UNPACKED / "usr" / "bin" / PROGRAM
    if not program.is_file():
        return [PROGRAM]
    # Not by LD_LIBRARY_PATH, which the program in QEMU would inherit.
    folders = (_UNPACKED / place / "x86_64-linux-gnu" for place in ("usr/lib", "lib"))
    return [_LOADER, "--library-path", ":".join(map(str, folders)), str(program)]
