# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors that end a training."""

from compiler_opt_perf.run.errors import UserError


class TrainingError(UserError):
    """A training that cannot start, or cannot go on in its folder."""
