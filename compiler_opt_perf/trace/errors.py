# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of this package."""


class TraceError(Exception):
    """A trace cannot be made or read; the message says which, why, and what to do."""
