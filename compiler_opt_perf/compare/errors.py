# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of the gate."""

from compiler_opt_perf.run.errors import UserError


class GateError(UserError):
    """A gate that cannot judge: a file that cannot be read, or measurements of different things."""
