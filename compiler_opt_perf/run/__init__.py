# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Running things: commands with limits, work over processes, files that are never half-written."""

from compiler_opt_perf.run.environment import undo_locale_coercion

# Here, for all that starts programs imports this package: also in worker processes, and where no
# command line of ours runs.
undo_locale_coercion()
