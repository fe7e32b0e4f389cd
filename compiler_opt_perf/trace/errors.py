# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exception of block traces."""

from compiler_opt_perf.run.errors import UserError


class TraceError(UserError):
    """A trace cannot be written or read; the message names file, cause and remedy."""
