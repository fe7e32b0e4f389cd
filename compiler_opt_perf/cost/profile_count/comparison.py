# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A candidate's instructions: those of the profiled run, and what is estimated that it has more."""

from pathlib import Path
from typing import Any

from compiler_opt_perf.cost.evaluator import Cost, CostError
from compiler_opt_perf.cost.profile_count.estimate import (
    OTHER_CODE,
    Estimate,
    base_estimate,
    estimate,
    profiled_program,
)
from compiler_opt_perf.cost.profile_count.program import ProfiledProgram

# No candidate retires so small a share of what the profiled binary does.
_LEAST_FOUND = 0.1


def compared_with_profile(
    profile: Path, base: Path, candidate: Path, entries: tuple[str, ...]
) -> Cost:
    """What the profiled run retired, and the difference of what is estimated of both binaries.

    An error of the estimates that both binaries have cancels.

    Args:
      profile: manifest of the PMU profile.
      base: the profiled binary.
      candidate: another build of the program.
      entries: functions of which a call is estimated, too.

    Raises:
      CostError: the profile is of the calls of a function and counts none, or its lines are not
        found in a binary.
      FitError: the solver failed.
      PmuError, BinaryError, FitError: as ProfiledProgram.of, ProfiledProgram.read and `estimate`.
    """
    program = profiled_program(profile, base)
    if program.within and not program.entries[program.within]:
        raise CostError(
            f"{profile}: is of the calls of {program.within}, but counts none; collect "
            "it again with a run that calls the function"
        )
    before = base_estimate(program, entries)
    after = estimate(program, program.read(candidate), entries)
    _require_lines_found(base, before.total, program.measured)
    _require_lines_found(candidate, after.total, before.total)
    change = after.total - before.total
    total = program.measured + change
    report = {
        "measured": program.measured,
        "change": change,
        "entries": _entries(program, before, after, total),
    }
    return Cost(total, {**after.instructions, OTHER_CODE: total - after.total}, report)


def _require_lines_found(binary: Path, found: float, expected: float) -> None:
    if found < _LEAST_FOUND * expected:
        raise CostError(
            f"{binary}: the profile's lines are found for {found:,.0f} of {expected:,.0f} "
            "instructions; is it another program?"
        )


def _entries(
    program: ProfiledProgram, before: Estimate, after: Estimate, total: float
) -> dict[str, Any]:
    """For each entry its calls, and instructions of a call in the candidate and before."""
    entries = {
        name: {
            "calls": handler.calls,
            "instructions": handler.instructions,
            "base_instructions": before.handlers[name].instructions,
        }
        for name, handler in after.handlers.items()
    }
    if program.within:
        # The profile is of its calls alone: they are the whole cost.
        calls = float(program.entries[program.within])
        entries[program.within] = {
            "calls": calls,
            "instructions": total / calls,
            "base_instructions": program.measured / calls,
        }
    return entries
