# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of everything that is compared."""

from compiler_opt_perf.run.errors import UserError


class CompareError(UserError):
    """A file cannot be read, or two measurements cannot be compared."""
