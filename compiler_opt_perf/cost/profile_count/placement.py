# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where a candidate executes what the profiled binary executed.

Each activation of a source function happens in one instance of the profiled binary, n, and in one
instance of the candidate, m. Let w(m, n) be the share of n's activations that are in m. A call that
was inlined in n leads to the instance that it made; each activation of n has it, so the share
stays. A call that was not leads to the callee's own code, g, whose activations come from all its
callers: it adds w(m, n) * calls(n, g) / calls(g). In the candidate either leads to the instance
that the call site made there, or to the callee's own code. So w is the solution of a linear system.
It assumes that what a function does does not depend on its caller, where and only where the
profiled binary has not inlined it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, identity
from scipy.sparse.linalg import spsolve

from compiler_opt_perf.binary.symbolize import CallSite, Line
from compiler_opt_perf.cost.object_code import ObjectCode
from compiler_opt_perf.cost.profile_count.program import ProfiledProgram
from compiler_opt_perf.pmu.coverage import Stack as Instance

# A closed cycle of calls, which sampled counts can have, would leave no solution.
_DAMPING = 1 - 1e-9
# Shares below this are rounding errors of the solver.
NEGLIGIBLE = 1e-12

#: An instance m of the candidate, and one of the profiled binary, n.
Pair = tuple[Instance, Instance]
Floats = npt.NDArray[np.float64]
#: Pairs that the calls of a pair lead to; each with the part of the callee's activations in the
#: profiled binary that are of these calls.
Leads = Iterable[tuple[Pair, float]]


@dataclass(frozen=True)
class Shares:
    """The solution w of w = transfer w + start, over the pairs that the run reached.

    Attributes:
      pairs: [P] in the order of the vectors.
      transfer: [P, P] how the activations of a pair (column) lead to those of others (row).
      values: [P] float64, w(m, n).
    """

    pairs: Sequence[Pair]
    transfer: coo_array
    values: Floats


def solve_shares(start: Mapping[Pair, float], leads: Callable[[Pair], Leads]) -> Shares:
    """Follows calls from where the run enters the program, and solves for the shares.

    Args:
      start: of each pair, the part of the callee's activations that are not by calls in the
        program.
      leads: where the calls of a pair lead to.
    """
    pairs = list(start)
    index = {pair: number for number, pair in enumerate(pairs)}
    entries: list[tuple[int, int, float]] = []
    # Grows as pairs are reached.
    for pair in pairs:
        for reached, share in leads(pair):
            if reached not in index:
                index[reached] = len(index)
                pairs.append(reached)
            entries.append((index[reached], index[pair], share * _DAMPING))
    size = len(pairs)
    row, column, value = zip(*entries, strict=True) if entries else ((), (), ())
    transfer = coo_array((value, (row, column)), shape=(size, size))
    begun = np.array([*start.values(), *[0.0] * (size - len(start))])
    return Shares(pairs, transfer, solved(transfer, begun))


def solved(transfer: coo_array, start: Floats) -> Floats:
    """The x of x = transfer x + start."""
    size = len(start)
    solution = spsolve((identity(size, format="csc") - transfer.tocsc()).tocsc(), start)
    return np.asarray(solution, np.float64).reshape(size)


class Candidate:
    """The instances of a candidate's code.

    Attributes:
      code: of its functions.
      instances: its functions, and what is inlined in them.
    """

    def __init__(self, code: ObjectCode):
        self.code = code
        self.instances: set[Instance] = set()
        self._callees: dict[str, set[str | None]] = {}
        for name, function in code.functions.items():
            self.instances.add((name, ()))
            self._callees[name] = {call.callee for call in function.calls}
            for at in {one.location for one in function.instructions if one.location is not None}:
                for depth in range(len(at.call_sites) + 1):
                    self.instances.add((at.function, at.call_sites[:depth]))
        self._inlined: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in sorted(self.instances):
            if instance[1]:
                self._inlined[instance[0]].append(instance)

    def reached(self, caller: Instance, site: CallSite) -> Instance | None:
        """Where a call in an instance leads; None when nothing is left of it."""
        function, sites = caller
        inlined = (function, (*sites, site))
        if inlined in self.instances:
            return inlined
        callees = self._callees[function]
        outlined: Instance = (site.callee, ())
        called = site.callee in callees or None in callees
        return outlined if called and outlined in self.instances else None

    def copies(self, caller: Instance, callee: str) -> list[Instance]:
        """The instances of a callee that are inlined in another, at any depth."""
        function, sites = caller
        return [
            (name, inner)
            for name, inner in self._inlined[function]
            if inner[-1].callee == callee
            and len(inner) > len(sites)
            and inner[: len(sites)] == sites
        ]


@dataclass(frozen=True)
class Placement:
    """Which instances of the candidate execute what those of the profiled binary did.

    Attributes:
      shares: for each instance m of the candidate w(m, n), by instance n.
      solution: the same as vectors, with the linear system.
      indirect: for each callee in the candidate, by caller, calls that no direct call instruction
        makes. The caller is None for calls out of other code.
      entries: calls of each function of the profiled binary.
    """

    shares: Mapping[Instance, Mapping[Instance, float]]
    solution: Shares
    indirect: Mapping[str, Mapping[str | None, float]]
    entries: Mapping[str, int]

    @classmethod
    def of(cls, program: ProfiledProgram, code: ObjectCode) -> Self:
        """Places what the profiled program did in a candidate's code."""
        calls = _Calls(program, Candidate(code))
        solution = solve_shares(calls.start(), calls.leads)
        shares: dict[Instance, dict[Instance, float]] = {}
        values: list[float] = solution.values.tolist()
        for (m, n), share in zip(solution.pairs, values, strict=True):
            if share > NEGLIGIBLE:
                shares.setdefault(m, {})[n] = share
        return cls(shares, solution, calls.indirect(shares), program.entries)

    def entered(self, function: str) -> float | None:
        """Calls of a function; None when the profiled binary has inlined some of them."""
        shares = self.shares.get((function, ()), {})
        if any(sites for _, sites in shares):
            return None
        return sum(share * self.entries[name] for (name, _), share in shares.items())


class _Calls:
    """The calls that the profile has, followed in a candidate.

    A callee's activations are all calls of its own code: located ones (by a line of the profile),
    those of call instructions without a line, and external ones (out of other code).
    """

    def __init__(self, program: ProfiledProgram, candidate: Candidate):
        self._program = program
        self._candidate = candidate
        located = _located_calls(program)
        self._external = {
            callee: float(max(program.entries[callee] - located[callee], 0))
            for callee in program.entries
            if (callee, ()) in candidate.instances
        }
        # Functions without a line in the profile have no entries there, but calls.
        self._activations = {
            callee: located[callee] + self._external.get(callee, 0.0)
            for callee in {*program.entries, *located}
        }

    def start(self) -> dict[Pair, float]:
        """Where the run enters the program: as of `solve_shares`."""
        return {
            ((callee, ()), (callee, ())): calls / self._activations[callee]
            for callee, calls in self._external.items()
            if calls
        }

    def leads(self, pair: Pair) -> Leads:
        """The pairs that the calls of a pair lead to."""
        m, n = pair
        samples = self._program.samples.get(n)
        if samples is None:
            return
        function, sites = n
        for site in samples.callees:
            reached = self._candidate.reached(m, site)
            if reached is not None:
                yield (reached, (function, (*sites, site))), 1.0
        for line, targets in samples.targets.items():
            for callee, calls in targets.items():
                reached = self._candidate.reached(m, CallSite(line, callee))
                if reached is not None and calls:
                    yield (reached, (callee, ())), calls / self._activations[callee]
        if not sites:
            yield from self._unlocated_leads(m, function)

    def _unlocated_leads(self, m: Instance, caller: str) -> Leads:
        """Those of calls without a line: they may be any that the candidate has inlined."""
        unlocated = self._program.unlocated_calls.get(caller, Counter[str]())
        for callee, calls in unlocated.items():
            if not calls or callee not in self._activations:
                continue
            copies = self._candidate.copies(m, callee)
            if not copies and (callee, ()) in self._candidate.instances:
                copies = [(callee, ())]
            for copy in copies:
                yield (copy, (callee, ())), calls / len(copies) / self._activations[callee]

    def indirect(
        self, shares: Mapping[Instance, Mapping[Instance, float]]
    ) -> Mapping[str, Mapping[str | None, float]]:
        """As of Placement."""
        found: dict[str, dict[str | None, float]] = defaultdict(lambda: defaultdict(float))
        for callee, external in self._external.items():
            found[callee][None] += external
        direct, unlocated = _direct_calls(self._candidate.code)
        for m, line, callee, calls in self._located(shares):
            if (m, line, callee) in direct or (m[0], callee) in unlocated:
                continue
            if self._candidate.reached(m, CallSite(line, callee)) == (callee, ()):
                found[callee][m[0]] += calls
        return found

    def _located(
        self, shares: Mapping[Instance, Mapping[Instance, float]]
    ) -> Iterator[tuple[Instance, Line, str, float]]:
        """Calls of own code, by the candidate's instance: instance, line, callee, calls."""
        for m, parts in shares.items():
            for n, share in parts.items():
                samples = self._program.samples.get(n)
                for line, targets in samples.targets.items() if samples else ():
                    for callee, calls in targets.items():
                        yield m, line, callee, share * calls


def _located_calls(program: ProfiledProgram) -> Counter[str]:
    """Calls of each function by code of the profiled binary, inlined ones left out."""
    located: Counter[str] = Counter()
    for samples in program.samples.values():
        for targets in samples.targets.values():
            located.update(targets)
    for calls in program.unlocated_calls.values():
        located.update(calls)
    return located


def _direct_calls(
    code: ObjectCode,
) -> tuple[set[tuple[Instance, Line, str]], set[tuple[str, str]]]:
    """Call instructions with a callee: instance, line and callee; without a line, the functions."""
    located: set[tuple[Instance, Line, str]] = set()
    unlocated: set[tuple[str, str]] = set()
    for name, function in code.functions.items():
        for call in function.calls:
            if call.callee is not None and call.location is not None:
                instance = call.location.function, call.location.call_sites
                located.add((instance, call.location.line, call.callee))
            elif call.callee is not None:
                unlocated.add((name, call.callee))
    return located, unlocated
