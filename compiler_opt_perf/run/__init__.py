# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs things: commands with limits, tasks in worker processes, files written atomically."""

from compiler_opt_perf.run.environment import undo_locale_coercion

# Here, because every module that starts programs imports this package, in workers as well.
undo_locale_coercion()
