# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Restores this process's original environment, for the programs that it starts."""

import os
from pathlib import Path

# Values that Python gives LC_CTYPE when it starts in the C locale (PEP 538).
_COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")


def undo_locale_coercion() -> None:
    """Gives `LC_CTYPE` in `os.environ` back the value that Python replaced, if it did.

    Programs then run in their user's locale, whose sorting and conversions execute other code than
    Python's locale would. Python's own locale stays as it is.
    """
    current = os.environb.get(b"LC_CTYPE")
    if current not in _COERCED:
        return
    try:
        given = Path("/proc/self/environ").read_bytes().split(b"\0")[:-1]
    except OSError:
        return
    # Processes that rename themselves, as Ray's workers do, overwrite this memory.
    if not all(b"=" in entry for entry in given):
        return
    names = dict(entry.split(b"=", 1) for entry in given)
    before = names.get(b"LC_CTYPE")
    if before is None:
        del os.environb[b"LC_CTYPE"]
    elif before != current:
        os.environb[b"LC_CTYPE"] = before
