# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the profiled program under a profiling tool."""

from collections.abc import Sequence
from pathlib import Path

from absl import logging

from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.run.command import CompletedCommand
from compiler_opt_perf.run.workload import Run, WorkloadError, run_workload


def run_under(tool: str, run: Run, argv: Sequence[str], diagnostics: Path) -> CompletedCommand:
    """Runs the command `argv`, which runs the program under a tool.

    Args:
      tool: the tool's name in messages.
      run, argv, diagnostics: see `run_workload`.

    Raises:
      PmuError: a file cannot be opened, or the run timed out.
    """

    def report(seconds: float) -> None:
        logging.info("%s: running under %s for %.0f s", run.name, tool, seconds)

    try:
        finished = run_workload(run, argv, diagnostics, report)
    except WorkloadError as error:
        raise PmuError(str(error)) from error
    if finished.timed_out:
        raise PmuError(
            f"{run.name}: killed after its limit of {run.timeout_s:g} s under {tool}; "
            "give it less to do or more time"
        )
    return finished
