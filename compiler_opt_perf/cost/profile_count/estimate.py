# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a candidate retires: counts of its blocks that fit what is expected of its lines."""

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array

from compiler_opt_perf.binary.symbolize import Line
from compiler_opt_perf.cost.block_counts import Fitted, Observation, fit
from compiler_opt_perf.cost.object_code import FunctionCode, ObjectCode
from compiler_opt_perf.cost.profile_count.expectation import (
    all_copies,
    by_line,
    executions,
    of_candidate,
)
from compiler_opt_perf.cost.profile_count.placement import NEGLIGIBLE, Pair, Placement, solved
from compiler_opt_perf.cost.profile_count.program import ProfiledProgram
from compiler_opt_perf.pmu.coverage import Stack as Instance
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.profile import Profile

# Recursion alters the calls that counts are computed from; it settles quickly.
_ROUNDS = 3
_SETTLED = 0.001
#: Part of a candidate's cost that is not in its functions: start-up code, the linkage table.
OTHER_CODE = "(other code)"


@dataclass(frozen=True)
class Handler:
    """What calls of one function take, with all that it calls in the program.

    Attributes:
      calls: of the function, in the run.
      instructions: of one call, on average; a recursive call counts as one and in its caller.
    """

    calls: float
    instructions: float


@dataclass(frozen=True)
class Estimate:
    """What is estimated of one binary.

    Attributes:
      instructions: retired in the run, by function.
      handlers: by function, those that were asked for.
    """

    instructions: Mapping[str, float]
    handlers: Mapping[str, Handler]

    @property
    def total(self) -> float:
        """Retired instructions of all functions."""
        return sum(self.instructions.values())


def estimate(program: ProfiledProgram, code: ObjectCode, handlers: Sequence[str] = ()) -> Estimate:
    """Estimates what a binary retires when it does what the profiled run did.

    Args:
      code: of a candidate, or of the profiled binary itself.
      handlers: names of functions of which calls are estimated, too.

    Raises:
      PmuError: a handler, or the function that the profile is of, is not among the functions of
        the code.
      FitError: the solver failed.
    """
    for handler in (*handlers, *([program.within] if program.within else [])):
        if handler not in code.functions:
            raise PmuError(
                f"entry {handler}: not a function of the candidate that the profile knows; "
                "check its linkage name, or declare it noinline if it is inlined everywhere"
            )
    placement = Placement.of(program, code)
    fitted = _fit_functions(program, code, placement)
    instructions = {
        name: float(np.dot(code.functions[name].sizes, counts.blocks))
        for name, counts in fitted.items()
    }
    found = {}
    if handlers:
        own = _own_instructions(program, code, placement, fitted)
        inclusive = _inclusive_instructions(placement, own)
        for name in handlers:
            calls = fitted[name].entered
            found[name] = Handler(calls, inclusive.get(name, 0.0) / calls if calls else 0.0)
    return Estimate(instructions, found)


def _fit_functions(
    program: ProfiledProgram, code: ObjectCode, placement: Placement
) -> Mapping[str, Fitted]:
    """The counts of all functions' blocks, callers before those that they call."""
    callers = _callers(code)
    known = {function for function, _ in placement.shares}
    observations: dict[str, list[Observation]] = {}
    given: dict[str, float | None] = {}
    fitted: dict[str, Fitted] = {}
    order = _callers_first(code)
    for _ in range(_ROUNDS):
        for name in order:
            function = code.functions[name]
            entered = _entered(name, callers.get(name, {}), placement, fitted)
            if name in given and _settled(given[name], entered):
                continue
            given[name] = entered
            if name not in observations:
                # Nothing is known of the function besides how often its callers call it.
                observations[name] = (
                    _observations(program, function, placement) if name in known else []
                )
            if entered or any(one.low for one in observations[name]):
                fitted[name] = fit(function, observations[name], entered)
            else:
                fitted[name] = Fitted(np.zeros(len(function.sizes)), 0.0, {})
    return fitted


def _observations(
    program: ProfiledProgram, function: FunctionCode, placement: Placement
) -> list[Observation]:
    """What is expected of the blocks of a function of the candidate."""
    found: list[Observation] = []
    for instance, line, instructions in by_line(function):
        known = program.known_line(placement.shares.get(instance, {}), line)
        found += of_candidate(known, instructions)
    return found


def _callers(code: ObjectCode) -> Mapping[str, Mapping[str, list[int]]]:
    """For each callee, by caller, the numbers of the blocks that call it directly."""
    callers: dict[str, dict[str, list[int]]] = {}
    for name, function in code.functions.items():
        for call in function.calls:
            if call.callee is not None:
                callers.setdefault(call.callee, {}).setdefault(name, []).append(call.block)
    return callers


def _entered(
    name: str,
    callers: Mapping[str, list[int]],
    placement: Placement,
    fitted: Mapping[str, Fitted],
) -> float | None:
    """Calls of a function by the counts of its callers, or as the profile has them; None: neither.

    Args:
      callers: blocks that call it directly, by function.
      fitted: the functions whose counts are known so far.
    """
    if not callers.keys() <= fitted.keys():
        return placement.entered(name)
    direct = (float(fitted[caller].blocks[blocks].sum()) for caller, blocks in callers.items())
    return sum(direct, start=sum(placement.indirect.get(name, {}).values()))


def _settled(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is now
    return abs(now - before) <= 1 + _SETTLED * now


def _callers_first(code: ObjectCode) -> list[str]:
    """The functions, each after those that call it directly; of recursive ones, some."""
    callees = {
        name: sorted({c.callee for c in function.calls if c.callee and c.callee in code.functions})
        for name, function in code.functions.items()
    }
    seen: set[str] = set()
    finished: list[str] = []
    for root in sorted(callees):
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(callees[root]))]
        while stack:
            name, rest = stack[-1]
            following = next((callee for callee in rest if callee not in seen), None)
            if following is None:
                finished.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(callees[following])))
    return finished[::-1]


# Handlers


def _inclusive_instructions(placement: Placement, own: Mapping[Pair, float]) -> Mapping[str, float]:
    """Instructions of all calls of each function, with those of what they call.

    What an activation takes in all is, for each pair of instances (placement.py), c(m, n) =
    own(m, n) / w(m, n) + the sum of c over where its calls lead: the same linear system as that of
    the shares w, transposed.

    Args:
      own: of each pair, the instructions that the candidate executes itself.
    """
    solution = placement.solution
    costs = np.array([own.get(pair, 0.0) for pair in solution.pairs])
    shares = solution.values
    each = np.divide(costs, shares, out=np.zeros(len(costs)), where=shares > NEGLIGIBLE)
    totals = solved(coo_array(solution.transfer.T), each) * shares
    found: defaultdict[str, float] = defaultdict(float)
    for ((function, sites), _), total in zip(solution.pairs, totals, strict=True):
        if not sites:
            found[function] += float(total)
    return found


def _own_instructions(
    program: ProfiledProgram,
    code: ObjectCode,
    placement: Placement,
    fitted: Mapping[str, Fitted],
) -> Mapping[Pair, float]:
    """The candidate's instructions, by the instances that execute them in both binaries.

    Those of an instance m are divided among the instances n by how often these ran the line; of
    lines that the profiled binary lacks, as all others of m.
    """
    own: defaultdict[Pair, float] = defaultdict(float)
    rest: defaultdict[Instance, float] = defaultdict(float)
    for name, function in code.functions.items():
        for instruction in function.instructions:
            count = float(fitted[name].blocks[instruction.block])
            at = instruction.location
            m = (at.function, at.call_sites) if at else (name, ())
            shares = placement.shares.get(m, {})
            parts = _line_executions(program, shares, at.line) if at and count else {}
            total = sum(parts.values())
            if not total:
                rest[m if m in placement.shares else (name, ())] += count
                continue
            for n, part in parts.items():
                own[m, n] += count * part / total
    for m, count in rest.items():
        shares = placement.shares.get(m, {})
        located = {n: own.get((m, n), 0.0) for n in shares}
        parts = located if sum(located.values()) else dict(shares)
        total = sum(parts.values())
        for n, part in parts.items():
            own[m, n] += count * part / total
    return own


def _line_executions(
    program: ProfiledProgram, shares: Mapping[Instance, float], line: Line
) -> dict[Instance, float]:
    """How often instances n of the profiled binary ran a line, times their shares."""
    parts = {}
    for n, share in shares.items():
        copies = program.copies.get(n, {}).get(line)
        if copies is not None:
            parts[n] = share * max(executions(all_copies(copies)))
    return parts


# Profiles and estimates that are used again


def profiled_program(profile: Path, binary: Path) -> ProfiledProgram:
    """The profiled binary with its counts; kept for the candidates that follow.

    Raises as ProfiledProgram.of and Profile.load.
    """
    return _profiled_program(profile, binary, profile.stat().st_mtime_ns, binary.stat().st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _profiled_program(profile: Path, binary: Path, *_: int) -> ProfiledProgram:
    return ProfiledProgram.of(Profile.load(profile), binary)


@functools.lru_cache(maxsize=2)
def base_estimate(program: ProfiledProgram, handlers: tuple[str, ...]) -> Estimate:
    """What is estimated of the profiled binary itself, by which candidates are compared with it.

    Raises as `estimate`.
    """
    return estimate(program, program.code, handlers)
