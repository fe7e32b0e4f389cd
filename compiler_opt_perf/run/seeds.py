# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seeds: one number for a run, and independent streams derived from it by name."""

import hashlib


def derive_seed(seed: int, *names: str | int) -> int:
    """A 64-bit seed for the stream named by `names`, the same in every process and version.

    Python's own `hash` is salted per process and would break reproducibility.
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
