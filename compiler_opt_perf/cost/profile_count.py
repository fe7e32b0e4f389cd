# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predicts how many instructions a candidate retires, from the profile of another build.

Three steps; docs/cost.md tells why.

1. `ProfiledProgram` computes how often each block of the profiled binary ran, so that its lines'
   counts add up to the profile's, and thereby how often each instruction ran.
2. An **instance** is a function as machine code holds it: compiled by itself, or inlined by a chain
   of call sites. `_Placement` computes which share of what each instance of the profiled binary
   executed happens in which instance of the candidate.
3. Instructions of the candidate are expected to run as often as those of the same lines did;
   `block_counts.fit` makes counts of blocks of that, functions after their callers.
"""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, identity
from scipy.sparse.linalg import spsolve

from compiler_opt_perf.cost.block_counts import Fitted, Observation, fit
from compiler_opt_perf.cost.object_code import FunctionCode, Instruction, ObjectCode
from compiler_opt_perf.pmu.binary import build_id
from compiler_opt_perf.pmu.coverage import Stack as Instance
from compiler_opt_perf.pmu.disassembly import Kind
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.profile import Profile
from compiler_opt_perf.pmu.sample_profile import FunctionSamples, entered
from compiler_opt_perf.pmu.symbolize import CallSite, Line

# Weights of observations, in deviations of one execution.
_SURE = 1.0
_LIKELY = 0.5
_VAGUE = 0.2
_ABSENT = 0.1
# Recursion alters the calls that counts are computed from; it settles quickly.
_ROUNDS = 3
_SETTLED = 0.001
# A closed cycle of calls, which sampled counts can have, would leave no solution.
_DAMPING = 1 - 1e-9
# Shares below this are rounding errors of the solver.
_NOTHING = 1e-12
# Part of a candidate's cost that is not in its functions: start-up code, the linkage table.
OTHER_CODE = "(other code)"


class _Copy(NamedTuple):
    """An instruction of the profiled binary.

    Attributes:
      executions: how often it ran.
      duplication: so many copies the optimiser made of it.
      block: number of its block.
    """

    executions: float
    duplication: int
    block: int


# By mnemonic.
_Copies = dict[str, list[_Copy]]


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


class ProfiledProgram:
    """The profiled binary, with the executions of all its instructions.

    Attributes:
      measured: instructions that the run retired in the program.
      within: the function of whose calls the profile is; empty when it is of whole runs.
      entries: calls of each function.
    """

    def __init__(self, profile: Profile, binary: Path):
        """Computes the counts of the binary's blocks from the profile of its run.

        Raises:
          PmuError: the profile is of another build or has no executions, or the binary has no
            debug info.
          TraceError: its address map does not say which blocks follow each other.
          FitError: the solver failed.
        """
        expected, found = profile.manifest.program.build_id, build_id(binary)
        if found != expected:
            raise PmuError(
                f"{binary}: its build-id is {found}, but {profile.manifest.path} is of "
                f"{expected}: the profile of another build; give the binary that was profiled"
            )
        if "executions" not in profile.index:
            raise PmuError(
                f"{profile.manifest.path}: has no event executions; collect the profile again"
            )
        self._profile = profile
        self.entries = profile.samples.entries
        self.within = profile.manifest.collector.within
        self.measured = profile.manifest.event("executions").total
        #: Counts and calls of each instance, by the profile.
        self.samples: dict[Instance, FunctionSamples] = {}
        for name, samples in profile.samples.functions.items():
            self.samples.update(_instances((name, ()), samples))
        names = {*profile.functions, *profile.samples.functions}
        names.update(site.callee for _, sites in self.samples for site in sites)
        #: The executed and unexecuted instructions of each instance, by line.
        self.copies: dict[Instance, dict[Line, _Copies]] = {}
        #: Calls without a line, by caller and callee.
        self.unlocated: dict[str, Counter[str]] = {}
        self.code = ObjectCode.read(binary, names.__contains__)
        begun: dict[Instance, float] = {}
        self._names = names
        for name, code in self.code.functions.items():
            if name not in profile.samples.functions:
                continue
            fitted = fit(code, self._observations(code), float(self.entries[name]))
            calls = self.unlocated[name] = Counter()
            for call in code.calls:
                if call.callee is not None and call.location is None:
                    calls[call.callee] += round(fitted.blocks[call.block])
            begun.update(_begun(code, fitted))
            for instance, line, instructions in _by_line(code):
                copies: _Copies = self.copies.setdefault(instance, {}).setdefault(line, {})
                for one in instructions:
                    copies.setdefault(one.mnemonic, []).append(
                        _Copy(float(fitted.blocks[one.block]), _duplication(one), one.block)
                    )
        #: How often the calls of a line were made that are inlined in an instance.
        self.inlined_calls = self._inlined_calls(begun)
        self._active: set[Instance] = set()
        for (function, sites), lines in self.copies.items():
            every = (copy for copies in lines.values() for of in copies.values() for copy in of)
            if any(copy.executions for copy in every):
                self._active.update((function, sites[:depth]) for depth in range(len(sites) + 1))

    def read(self, binary: Path) -> ObjectCode:
        """Those functions of a candidate that may run.

        They are those that the profile knows, and those that the profiled binary had no code of: of
        a small function that is inlined everywhere nothing may be left that has its line.

        Raises as ObjectCode.read.
        """
        unexecuted = self.code.names - self._names
        return ObjectCode.read(binary, lambda name: name not in unexecuted)

    def is_active(self, instance: Instance) -> bool:
        """Whether one of the instance's instructions ran, or of those inlined in it."""
        return instance in self._active

    def _inlined_calls(self, begun: Mapping[Instance, float]) -> dict[tuple[Instance, Line], float]:
        """The calls that are inlined, by instance and line.

        Args:
          begun: how often the blocks of each inlined instance followed others.
        """
        column = self._profile.index["executions"]
        calls: defaultdict[tuple[Instance, Line], float] = defaultdict(float)
        for instance, samples in self.samples.items():
            function, sites = instance
            for site, callee in samples.callees.items():
                # Either is too much at times: a first line may be that of a loop, and a copy's
                # blocks may be interrupted by some without lines.
                made = min(begun.get((function, (*sites, site)), 0.0), entered(callee, column))
                calls[instance, site.line] += made
        return dict(calls)

    def _observations(self, code: FunctionCode) -> Iterator[Observation]:
        """What the profile says of the profiled binary's own blocks."""
        for instance, line, instructions in _by_line(code):
            executions = self._count(instance, line, "executions") or 0
            retired = self._count(instance, line, "instructions")
            for one in instructions:
                # The line's most frequent instruction ran as often as the line.
                most = executions / _duplication(one)
                if retired is None:
                    yield Observation((one.block,), most, most, _VAGUE)
                else:
                    yield Observation((one.block,), 0.0, most, _SURE)
            if retired is not None:
                blocks = tuple(one.block for one in instructions)
                yield Observation(blocks, retired, retired, _SURE)
            branches = self._count(instance, line, "conditional-branches")
            blocks = tuple(one.block for one in instructions if one.kind & Kind.CONDITIONAL)
            if blocks and branches is not None:
                yield Observation(blocks, branches, branches, _SURE)
        callers: defaultdict[tuple[Instance, Line, str], list[int]] = defaultdict(list)
        for call in code.calls:
            if call.location is not None and call.callee is not None:
                at = (call.location.function, call.location.call_sites), call.location.line
                callers[(*at, call.callee)].append(call.block)
        for (instance, line, callee), calling in callers.items():
            samples = self.samples.get(instance)
            targets = samples.targets.get(line) if samples else None
            called = targets[callee] if targets else 0
            yield Observation(tuple(calling), called, called, _SURE)

    def _count(self, instance: Instance, line: Line, event: str) -> int | None:
        """The profile's count of an event at a line; None when it has no such event."""
        column = self._profile.index.get(event)
        if column is None:
            return None
        samples = self.samples.get(instance)
        counts = samples.lines.get(line) if samples else None
        return counts[column] if counts else 0

    def estimate(self, code: ObjectCode, handlers: Sequence[str] = ()) -> Estimate:
        """Estimates what a binary retires when it does what the profiled run did.

        Args:
          code: of a candidate, or of the profiled binary itself.
          handlers: names of functions of which calls shall be told.

        Raises:
          PmuError: a handler, or the function that the profile is of, is not among the functions
            of the code.
          FitError: the solver failed.
        """
        for handler in (*handlers, *([self.within] if self.within else [])):
            if handler not in code.functions:
                raise PmuError(
                    f"entry {handler}: not a function of the candidate that the profile knows; "
                    "check its linkage name, or declare it noinline if it is inlined everywhere"
                )
        placement = _Placement(self, code)
        fitted = _fit_functions(code, placement)
        instructions = {
            name: float(np.dot(code.functions[name].sizes, counts.blocks))
            for name, counts in fitted.items()
        }
        inclusive = placement.inclusive(fitted) if handlers else {}
        found = {}
        for name in handlers:
            calls = fitted[name].entered
            found[name] = Handler(calls, inclusive.get(name, 0.0) / calls if calls else 0.0)
        return Estimate(instructions, found)


def _instances(
    instance: Instance, samples: FunctionSamples
) -> Iterator[tuple[Instance, FunctionSamples]]:
    """A function's samples, and those of all that is inlined in it."""
    yield instance, samples
    function, sites = instance
    for site, inlined in samples.callees.items():
        yield from _instances((function, (*sites, site)), inlined)


def _by_line(code: FunctionCode) -> Iterator[tuple[Instance, Line, list[Instruction]]]:
    """The instructions of each line, in each instance.

    Repeated string instructions are left out: the simulator counts their iterations.
    """
    groups: dict[tuple[Instance, Line], list[Instruction]] = {}
    for one in code.instructions:
        at = one.location
        if at is not None and not one.mnemonic.startswith("rep"):
            groups.setdefault(((at.function, at.call_sites), at.line), []).append(one)
    for (instance, line), instructions in groups.items():
        yield instance, line, instructions


def _begun(code: FunctionCode, counts: Fitted) -> dict[Instance, float]:
    """How often each inlined instance of a function began: its blocks followed others."""
    members: list[set[Instance]] = [set() for _ in code.sizes]
    for one in code.instructions:
        at = one.location
        if at is not None:
            sites = at.call_sites
            members[one.block].update(
                (at.function, sites[:depth]) for depth in range(1, len(sites) + 1)
            )
    begun: defaultdict[Instance, float] = defaultdict(float)
    for block, instances in enumerate(members):
        for instance in instances:
            begun[instance] += float(counts.blocks[block])
    for (source, target), count in counts.edges.items():
        for instance in members[source] & members[target]:
            begun[instance] -= count
    return begun


def _duplication(instruction: Instruction) -> int:
    assert instruction.location is not None
    return instruction.location.duplication


class _Placement:
    """Where the candidate executes what the profiled binary executed.

    Each activation of a source function happens in one instance of the profiled binary, n, and in
    one instance of the candidate, m. Let w(m, n) be the share of n's activations that are in m. A
    call that was inlined in n leads to the instance that it made; each activation of n has it, so
    the share stays. A call that was not leads to the callee's own code, g, whose activations come
    from all its callers: it adds w(m, n) * calls(n, g) / calls(g). In the candidate either leads to
    the instance that the call site made there, or to the callee's own code. So w is the solution of
    a linear system. It assumes that what a function does does not depend on its caller, where and
    only where the profiled binary has not inlined it.

    Attributes:
      shares: for each instance m of the candidate the instances n, with w(m, n).
      indirect: for each two functions of the candidate, calls of the second in the first that no
        direct call instruction makes. The caller is None for calls out of other code.
    """

    def __init__(self, program: ProfiledProgram, code: ObjectCode):
        self._program = program
        self._code = code
        self._instances: set[Instance] = set()
        # Those inlined in each function.
        self._inlined: defaultdict[str, list[Instance]] = defaultdict(list)
        self._callees: dict[str, set[str | None]] = {}
        for name, function in code.functions.items():
            self._instances.add((name, ()))
            self._callees[name] = {call.callee for call in function.calls}
            for at in {one.location for one in function.instructions} - {None}:
                assert at is not None
                for depth in range(len(at.call_sites) + 1):
                    self._instances.add((at.function, at.call_sites[:depth]))
        for instance in sorted(self._instances):
            if instance[1]:
                self._inlined[instance[0]].append(instance)
        located: Counter[str] = Counter()
        for samples in program.samples.values():
            for targets in samples.targets.values():
                located.update(targets)
        for calls in program.unlocated.values():
            located.update(calls)
        self._external = {
            callee: float(max(program.entries[callee] - located[callee], 0))
            for callee in program.entries
            if (callee, ()) in self._instances
        }
        # Functions without a line in the profile have no entries there, but calls.
        self._activations = {
            callee: located[callee] + self._external.get(callee, 0.0)
            for callee in {*program.entries, *located}
        }
        self._states: list[tuple[Instance, Instance]] = []
        self._transfer = coo_array((0, 0))
        self._solution = np.zeros(0)
        self.shares = self._solve()
        self._known = {function for function, _ in self.shares}
        self.indirect = self._indirect_calls()

    def _solve(self) -> dict[Instance, list[tuple[Instance, float]]]:
        index: dict[tuple[Instance, Instance], int] = {}
        for callee, external in self._external.items():
            if external:
                index[(callee, ()), (callee, ())] = len(index)
        outer = [external for external in self._external.values() if external]
        pending = list(index)
        begun = [
            calls / self._activations[callee]
            for (callee, _), calls in zip((pair[0] for pair in pending), outer, strict=True)
        ]
        entries: list[tuple[int, int, float]] = []
        # Grows as pairs are reached.
        for pair in pending:
            for reached, share in self._calls(*pair):
                if reached not in index:
                    index[reached] = len(index)
                    pending.append(reached)
                entries.append((index[reached], index[pair], share * _DAMPING))
        size = len(index)
        row, column, value = zip(*entries, strict=True) if entries else ((), (), ())
        self._states = pending
        self._transfer = coo_array((value, (row, column)), shape=(size, size))
        self._solution = _solved(self._transfer, np.array([*begun, *[0.0] * (size - len(begun))]))
        shares: dict[Instance, list[tuple[Instance, float]]] = {}
        for (here, there), share in zip(pending, self._solution.tolist(), strict=True):
            if share > _NOTHING:
                shares.setdefault(here, []).append((there, share))
        return shares

    def _calls(
        self, here: Instance, there: Instance
    ) -> Iterator[tuple[tuple[Instance, Instance], float]]:
        """The pairs of instances that calls lead to from one, and how w goes on."""
        samples = self._program.samples.get(there)
        if samples is None:
            return
        function, sites = there
        for site in samples.callees:
            reached = self._reached(here, site)
            if reached is not None:
                yield (reached, (function, (*sites, site))), 1.0
        for line, targets in samples.targets.items():
            for callee, calls in targets.items():
                reached = self._reached(here, CallSite(line, callee))
                if reached is not None and calls:
                    yield (reached, (callee, ())), calls / self._activations[callee]
        if not sites:
            yield from self._unlocated_calls(here, function)

    def _unlocated_calls(
        self, here: Instance, caller: str
    ) -> Iterator[tuple[tuple[Instance, Instance], float]]:
        """The same of calls without a line: they may be any that the candidate has inlined."""
        function, sites = here
        for callee, calls in self._program.unlocated.get(caller, Counter[str]()).items():
            if not calls or callee not in self._activations:
                continue
            places = [
                (name, inner)
                for name, inner in self._inlined[function]
                if inner[-1].callee == callee
                and len(inner) > len(sites)
                and inner[: len(sites)] == sites
            ]
            if not places and (callee, ()) in self._instances:
                places = [(callee, ())]
            for place in places:
                yield (place, (callee, ())), calls / len(places) / self._activations[callee]

    def _reached(self, here: Instance, site: CallSite) -> Instance | None:
        """Where a call leads in the candidate; None when nothing is left of it."""
        function, sites = here
        inlined = (function, (*sites, site))
        if inlined in self._instances:
            return inlined
        callees = self._callees[function]
        outlined: Instance = (site.callee, ())
        called = site.callee in callees or None in callees
        return outlined if called and outlined in self._instances else None

    def _indirect_calls(self) -> dict[str, dict[str | None, float]]:
        """For each callee, by caller."""
        direct: set[tuple[Instance, Line, str]] = set()
        unlocated: set[tuple[str, str]] = set()
        for name, function in self._code.functions.items():
            for call in function.calls:
                if call.callee is not None and call.location is not None:
                    instance = call.location.function, call.location.call_sites
                    direct.add((instance, call.location.line, call.callee))
                elif call.callee is not None:
                    unlocated.add((name, call.callee))
        found: dict[str, dict[str | None, float]] = defaultdict(lambda: defaultdict(float))
        for callee, external in self._external.items():
            found[callee][None] += external
        for here, pairs in self.shares.items():
            for there, share in pairs:
                samples = self._program.samples.get(there)
                for line, targets in samples.targets.items() if samples else ():
                    for callee, calls in targets.items():
                        known = (here, line, callee) in direct or (here[0], callee) in unlocated
                        if not known and self._reached(here, CallSite(line, callee)) == (
                            callee,
                            (),
                        ):
                            found[callee][here[0]] += share * calls
        return found

    def observations(self, name: str) -> list[Observation]:
        """What the lines of a function of the candidate lead to expect of its blocks.

        Of a function that nothing is known of only its callers tell how often it runs.
        """
        code = self._code.functions[name]
        if name not in self._known:
            return []
        found: list[Observation] = []
        for instance, line, instructions in _by_line(code):
            found += self._of_line(self.shares.get(instance, []), line, instructions)
        return found

    def entered(self, function: str) -> float | None:
        """Calls of a function; None when the profiled binary has inlined some of them."""
        pairs = self.shares.get((function, ()), [])
        if any(sites for (_, sites), _ in pairs):
            return None
        return sum(share * self._program.entries[name] for (name, _), share in pairs)

    def inclusive(self, fitted: Mapping[str, Fitted]) -> dict[str, float]:
        """Instructions of all calls of each function, with those of what they call.

        Those of an instance m are divided among the instances n by the counts of their lines. What
        an activation takes in all is then, for each pair, c(m, n) = own(m, n) / w(m, n) + the sum
        of c over where its calls lead: the same linear system, transposed.
        """
        own = self._own(fitted)
        share = self._solution
        costs = np.array([own.get(state, 0.0) for state in self._states])
        each = np.divide(costs, share, out=np.zeros(len(costs)), where=share > _NOTHING)
        costs = _solved(coo_array(self._transfer.T), each)
        found: defaultdict[str, float] = defaultdict(float)
        for ((function, sites), _), cost in zip(self._states, costs * share, strict=True):
            if not sites:
                found[function] += float(cost)
        return found

    def _own(self, fitted: Mapping[str, Fitted]) -> dict[tuple[Instance, Instance], float]:
        """The candidate's instructions, by the instances that execute them in both binaries."""
        own: defaultdict[tuple[Instance, Instance], float] = defaultdict(float)
        # Of instructions without a line in the profiled binary.
        rest: defaultdict[Instance, float] = defaultdict(float)
        for name, function in self._code.functions.items():
            for one in function.instructions:
                count, at = float(fitted[name].blocks[one.block]), one.location
                here = (at.function, at.call_sites) if at else (name, ())
                parts = self._parts(here, at.line) if at and count else {}
                total = sum(parts.values())
                if not total:
                    rest[here if here in self.shares else (name, ())] += count
                for there, part in parts.items() if total else ():
                    own[here, there] += count * part / total
        for here, count in rest.items():
            pairs = self.shares.get(here, [])
            located = [own.get((here, there), 0.0) for there, _ in pairs]
            parts_of = located if sum(located) else [share for _, share in pairs]
            for (there, _), part in zip(pairs, parts_of, strict=True):
                own[here, there] += count * part / sum(parts_of)
        return own

    def _parts(self, here: Instance, line: Line) -> dict[Instance, float]:
        """How often the profiled binary's instances ran a line of the candidate's."""
        parts = {}
        for there, share in self.shares.get(here, ()):
            copies = self._program.copies.get(there, {}).get(line)
            if copies is not None:
                ran = _executions([one for of in copies.values() for one in of])
                parts[there] = share * max(ran)
        return parts

    def _of_line(
        self,
        pairs: Sequence[tuple[Instance, float]],
        line: Line,
        instructions: Sequence[Instruction],
    ) -> Iterator[Observation]:
        """What is expected of the instructions of one line in one instance."""
        known: list[tuple[float, _Copies]] = []
        # Calls of the line that the profiled binary has inlined, without instructions of the line.
        calls: float | None = None
        # Instances that ran, but have nothing of this line: it ran there as it may.
        missing = False
        for there, share in pairs:
            copies = self._program.copies.get(there, {}).get(line)
            if copies is not None:
                known.append((share, copies))
                continue
            missing |= self._program.is_active(there)
            inlined = self._program.inlined_calls.get((there, line))
            if inlined is not None:
                calls = (calls or 0.0) + share * inlined
        if not known:
            if calls is not None:
                for one in instructions:
                    yield Observation((one.block,), calls, calls, _VAGUE)
            elif not missing:
                for one in instructions:
                    yield Observation((one.block,), 0.0, 0.0, _ABSENT)
            return
        duplications = {_duplication(one) for one in instructions}
        regrouped = duplications != {
            copy.duplication for _, copies in known for of in copies.values() for copy in of
        }
        groups: dict[str, list[Instruction]] = {}
        for one in instructions:
            groups.setdefault(one.mnemonic, []).append(one)
        if regrouped and duplications == {1}:
            for mnemonic, group in groups.items():
                yield from _gathered(known, mnemonic, group, missing)
            return
        for mnemonic, group in groups.items():
            wanted = sorted(map(_duplication, group))
            if all(
                sorted(copy.duplication for copy in copies.get(mnemonic, ())) == wanted
                for _, copies in known
            ):
                # The same instructions as in the profiled binary: they run as often, in all.
                count = sum(
                    share * sum(copy.executions for copy in copies[mnemonic])
                    for share, copies in known
                )
                blocks = tuple(one.block for one in group)
                yield Observation(blocks, count, math.inf if missing else count, _SURE)
                if len(group) == 1:
                    continue
                alike = True
            else:
                alike = False
            yield from _vague(known, mnemonic, group, regrouped, missing, alike)


def _gathered(
    known: Sequence[tuple[float, _Copies]],
    mnemonic: str,
    group: Sequence[Instruction],
    missing: bool,
) -> Iterator[Observation]:
    """Bounds for plain instructions of a line that the profiled binary has unrolled or vectorised.

    Its rounds there were those of the unrolled loop and those of the loop for the rest.

    Args:
      known, mnemonic, group, missing: as for `_vague`.
    """
    least = low = high = 0.0
    for share, copies in known:
        everything = [one for of in copies.values() for one in of]
        plain, unrolled = _rounds(everything)
        if unrolled:
            least += share * min([*plain, *unrolled])
            low += share * (max(plain, default=0.0) + sum(unrolled))
            high += share * (sum(plain) + sum(unrolled))
        else:
            apart = _executions(copies.get(mnemonic) or everything)
            least += share * min(apart)
            low += share * min(apart)
            high += share * max(apart)
    high = math.inf if missing else high
    blocks = {one.block for one in group}
    for block in sorted(blocks):
        if len(blocks) == 1:
            yield Observation((block,), low, high, _LIKELY)
        else:
            yield Observation((block,), least, high, _VAGUE)


def _vague(
    known: Sequence[tuple[float, _Copies]],
    mnemonic: str,
    group: Sequence[Instruction],
    regrouped: bool,
    missing: bool,
    alike: bool,
) -> Iterator[Observation]:
    """Bounds for instructions where the profiled binary has other ones, or several.

    Args:
      known: what the profiled binary has of the line, each with its share.
      mnemonic: of the instructions `group`.
      regrouped: loops are unrolled or vectorised otherwise; the last round may be part of one.
      missing: there may have been more executions.
      alike: the profiled binary has the same instructions.
    """
    least = most = everything = 0.0
    for share, copies in known:
        apart = _executions(copies.get(mnemonic) or [one for of in copies.values() for one in of])
        least += share * min(apart)
        most += share * max(apart)
        everything += share * sum(apart)
    # Copies in several blocks of the profiled binary may be one here.
    joined = (
        not alike
        and len({one.block for one in group}) == 1
        and all(mnemonic in copies for _, copies in known)
    )
    by_duplication: dict[int, list[int]] = {}
    for one in group:
        by_duplication.setdefault(_duplication(one), []).append(one.block)
    for duplication, blocks in by_duplication.items():
        high = math.inf if missing else everything if joined or regrouped else most
        if duplication == 1 and not joined:
            for block in blocks:
                yield Observation((block,), least, high, _VAGUE)
        elif duplication == 1:
            yield Observation((blocks[0],), most, high, _LIKELY)
        elif not alike:
            # The copies of an unrolled line share its executions, evenly or not.
            rounds = len(blocks) / duplication
            most_each = len(blocks) if regrouped else rounds
            low = rounds * (most if joined else least)
            weight = (_LIKELY if joined else _VAGUE) / len(blocks)
            yield Observation(tuple(blocks), low, most_each * high, weight)


def _executions(copies: Sequence[_Copy]) -> list[float]:
    """How often a line ran, by each of its instructions that may have run apart."""
    plain, unrolled = _rounds(copies)
    return plain + unrolled


def _rounds(copies: Sequence[_Copy]) -> tuple[list[float], list[float]]:
    """The same, of plain instructions and of those of unrolled loops.

    Instructions of one block ran together. The copies that unrolling made share the line's
    executions: evenly, or not when a loop of few rounds is unrolled as a whole.
    """
    plain = {copy.block: copy.executions for copy in copies if copy.duplication == 1}
    unrolled: dict[int, list[float]] = {}
    for copy in copies:
        if copy.duplication > 1:
            unrolled.setdefault(copy.duplication, []).append(copy.executions)
    return list(plain.values()), [
        duplication * sum(each) / len(each) for duplication, each in unrolled.items()
    ]


def _fit_functions(code: ObjectCode, placement: _Placement) -> dict[str, Fitted]:
    """The counts of all functions' blocks, callers before those that they call."""
    callers: dict[str, dict[str, list[int]]] = {}
    for name, function in code.functions.items():
        for call in function.calls:
            if call.callee is not None:
                callers.setdefault(call.callee, {}).setdefault(name, []).append(call.block)
    observations: dict[str, list[Observation]] = {}
    given: dict[str, float | None] = {}
    fitted: dict[str, Fitted] = {}
    order = _callers_first(code)
    for _ in range(_ROUNDS):
        for name in order:
            function = code.functions[name]
            entered: float | None = sum(placement.indirect.get(name, {}).values())
            for caller, blocks in callers.get(name, {}).items():
                if caller in fitted and entered is not None:
                    entered += float(fitted[caller].blocks[blocks].sum())
                else:
                    entered = None
            if entered is None:
                entered = placement.entered(name)
            if name in given and _settled(given[name], entered):
                continue
            given[name] = entered
            known = observations.setdefault(name, placement.observations(name))
            if entered or any(one.low for one in known):
                fitted[name] = fit(function, known, entered)
            else:
                fitted[name] = Fitted(np.zeros(len(function.sizes)), 0.0, {})
    return fitted


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


def _solved(transfer: coo_array, start: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The x of x = transfer x + start."""
    size = len(start)
    solution: npt.NDArray[np.float64] = spsolve(
        (identity(size, format="csc") - transfer.tocsc()).tocsc(), start
    )
    return np.asarray(solution).reshape(size)


def profiled_program(profile: Path, binary: Path) -> ProfiledProgram:
    """The profiled binary with its counts; kept for the candidates that follow.

    Raises as ProfiledProgram and Profile.load.
    """
    return _profiled_program(profile, binary, profile.stat().st_mtime_ns, binary.stat().st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _profiled_program(profile: Path, binary: Path, *_: int) -> ProfiledProgram:
    return ProfiledProgram(Profile.load(profile), binary)


@functools.lru_cache(maxsize=2)
def base_estimate(program: ProfiledProgram, handlers: tuple[str, ...]) -> Estimate:
    """What is estimated of the profiled binary itself, by which candidates are compared with it.

    Raises as ProfiledProgram.estimate.
    """
    return program.estimate(program.code, handlers)
