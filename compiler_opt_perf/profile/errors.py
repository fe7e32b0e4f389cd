# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of PMU profiles that the user can mend."""

from compiler_opt_perf.run.errors import UserError


class PmuError(UserError):
    """A PMU profile cannot be made, or cannot be read.

    The message names the file, the place in it, what was expected, and the remedy.
    """
