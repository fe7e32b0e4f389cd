# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the user of `cop try` can do something about."""

from compiler_opt_perf.run.errors import UserError


class TrialError(UserError):
    """A build or run that failed, or that nothing can be learned from."""
