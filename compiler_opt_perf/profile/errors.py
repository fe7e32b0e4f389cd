# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the user of a PMU profile can do something about."""

from compiler_opt_perf.run.errors import UserError


class PmuError(UserError):
    """A run, binary or file that no PMU profile can be made of (or read from).

    The message names the file, the place in it where there is one, what was expected and what to
    do about it.
    """
