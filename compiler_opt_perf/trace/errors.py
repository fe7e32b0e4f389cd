# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of this package."""

from compiler_opt_perf.run.errors import UserError


class TraceError(UserError):
    """A trace cannot be made or read; the message says which, why, and what to do."""
