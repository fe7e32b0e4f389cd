# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The profiled binary: how often each of its instructions ran, by source line and inline stack."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler_opt_perf.binary.elf import build_id
from compiler_opt_perf.binary.symbolize import Line
from compiler_opt_perf.cost.block_counts import Fitted, Observation, fit
from compiler_opt_perf.cost.object_code import FunctionCode, ObjectCode
from compiler_opt_perf.cost.profile_count.expectation import (
    Copies,
    Copy,
    KnownLine,
    LineCounts,
    by_line,
    calling,
    duplication,
    of_profiled,
)
from compiler_opt_perf.pmu.coverage import Stack as Instance
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.profile import Profile
from compiler_opt_perf.pmu.sample_profile import FunctionSamples, entered


@dataclass(frozen=True, eq=False)
class ProfiledProgram:
    """The profiled binary, with the executions of all its instructions.

    Attributes:
      measured: instructions that the run retired in the program.
      within: the function of whose calls the profile is; empty when it is of whole runs.
      entries: calls of each function.
      samples: counts and calls of each instance, by the profile.
      names: of all functions that the profile knows.
      code: of these functions.
      copies: the executed and unexecuted instructions of each instance, by line.
      active: instances of which one instruction ran, or one of those that are inlined in them.
      inlined_calls: how often the calls of a line were made that are inlined in an instance.
      unlocated_calls: calls without a line, by caller and callee.
    """

    measured: int
    within: str
    entries: Counter[str]
    samples: Mapping[Instance, FunctionSamples]
    names: Set[str]
    code: ObjectCode
    copies: Mapping[Instance, Mapping[Line, Copies]]
    active: Set[Instance]
    inlined_calls: Mapping[tuple[Instance, Line], float]
    unlocated_calls: Mapping[str, Counter[str]]

    @classmethod
    def of(cls, profile: Profile, binary: Path) -> Self:
        """Computes the counts of the binary's blocks from the profile of its run.

        Raises:
          PmuError: the profile is of another build or has no executions.
          BinaryError: the binary has no debug info, or its address map does not say which blocks
            follow each other.
          FitError: the solver failed.
        """
        _require_profile_of(profile, binary)
        entries = profile.samples.entries
        samples: dict[Instance, FunctionSamples] = {}
        for name, function in profile.samples.functions.items():
            samples.update(_instances((name, ()), function))
        names = {*profile.functions, *profile.samples.functions}
        names.update(site.callee for _, sites in samples for site in sites)
        code = ObjectCode.read(binary, names.__contains__)
        fitted = {
            name: fit(
                function, _observations(function, samples, profile.index), float(entries[name])
            )
            for name, function in code.functions.items()
            if name in profile.samples.functions
        }
        copies = _copies(code, fitted)
        return cls(
            measured=profile.manifest.event("executions").total,
            within=profile.manifest.collector.within,
            entries=entries,
            samples=samples,
            names=names,
            code=code,
            copies=copies,
            active=_active(copies),
            inlined_calls=_inlined_calls(samples, profile.index["executions"], code, fitted),
            unlocated_calls=_unlocated_calls(code, fitted),
        )

    def read(self, binary: Path) -> ObjectCode:
        """Those functions of a candidate that may run.

        They are those that the profile knows, and those that the profiled binary had no code of: of
        a small function that is inlined everywhere nothing may be left that has its line.

        Raises as ObjectCode.read.
        """
        unexecuted = self.code.names - self.names
        return ObjectCode.read(binary, lambda name: name not in unexecuted)

    def known_line(self, shares: Mapping[Instance, float], line: Line) -> KnownLine:
        """What is known of a line in some instances.

        Args:
          shares: of each instance, the part that counts.
        """
        known: list[tuple[float, Copies]] = []
        calls: float | None = None
        incomplete = False
        for instance, share in shares.items():
            copies = self.copies.get(instance, {}).get(line)
            if copies is not None:
                known.append((share, copies))
                continue
            incomplete |= instance in self.active
            inlined = self.inlined_calls.get((instance, line))
            if inlined is not None:
                calls = (calls or 0.0) + share * inlined
        return KnownLine(known, calls, incomplete)


def _require_profile_of(profile: Profile, binary: Path) -> None:
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


def _instances(
    instance: Instance, samples: FunctionSamples
) -> Iterator[tuple[Instance, FunctionSamples]]:
    """A function's samples, and those of all that is inlined in it."""
    yield instance, samples
    function, sites = instance
    for site, inlined in samples.callees.items():
        yield from _instances((function, (*sites, site)), inlined)


def _observations(
    code: FunctionCode, samples: Mapping[Instance, FunctionSamples], index: Mapping[str, int]
) -> Iterator[Observation]:
    """What the profile says of the blocks of one function of the profiled binary.

    Args:
      index: column of each event in the samples' counts.
    """

    def count(instance: Instance, line: Line, event: str) -> int | None:
        if event not in index:
            return None
        known = samples.get(instance)
        counts = known.lines.get(line) if known else None
        return counts[index[event]] if counts else 0

    for instance, line, instructions in by_line(code):
        yield from of_profiled(
            instructions,
            LineCounts(
                executions=count(instance, line, "executions") or 0,
                retired=count(instance, line, "instructions"),
                branches=count(instance, line, "conditional-branches"),
            ),
        )
    callers: defaultdict[tuple[Instance, Line, str], list[int]] = defaultdict(list)
    for call in code.calls:
        if call.location is not None and call.callee is not None:
            instance = call.location.function, call.location.call_sites
            callers[instance, call.location.line, call.callee].append(call.block)
    for (instance, line, callee), blocks in callers.items():
        known = samples.get(instance)
        targets = known.targets.get(line) if known else None
        yield calling(blocks, targets[callee] if targets else 0)


def _copies(
    code: ObjectCode, fitted: Mapping[str, Fitted]
) -> Mapping[Instance, Mapping[Line, Copies]]:
    """The instructions of each instance, by line and mnemonic."""
    found: dict[Instance, dict[Line, dict[str, list[Copy]]]] = {}
    for name, counts in fitted.items():
        for instance, line, instructions in by_line(code.functions[name]):
            copies = found.setdefault(instance, {}).setdefault(line, {})
            for one in instructions:
                copies.setdefault(one.mnemonic, []).append(
                    Copy(float(counts.blocks[one.block]), duplication(one), one.block)
                )
    return found


def _active(copies: Mapping[Instance, Mapping[Line, Copies]]) -> set[Instance]:
    """The instances of which something ran, and those that they are inlined in."""
    found: set[Instance] = set()
    for (function, sites), lines in copies.items():
        groups = (group for line in lines.values() for group in line.values())
        if any(copy.executions for group in groups for copy in group):
            found.update((function, sites[:depth]) for depth in range(len(sites) + 1))
    return found


def _unlocated_calls(code: ObjectCode, fitted: Mapping[str, Fitted]) -> dict[str, Counter[str]]:
    """The calls that the optimiser left no line, which the profile cannot count."""
    found: dict[str, Counter[str]] = {}
    for name, counts in fitted.items():
        calls = found[name] = Counter()
        for call in code.functions[name].calls:
            if call.callee is not None and call.location is None:
                calls[call.callee] += round(counts.blocks[call.block])
    return found


def _inlined_calls(
    samples: Mapping[Instance, FunctionSamples],
    executions: int,
    code: ObjectCode,
    fitted: Mapping[str, Fitted],
) -> dict[tuple[Instance, Line], float]:
    """How often the calls of each line were made that are inlined, by the caller's instance.

    There are two figures, and either is too much at times: the count of the callee's first line,
    which may be that of a loop, and how often the copy's blocks followed others, which may be
    interrupted by some without lines. The smaller one is taken.

    Args:
      executions: column of that event in the samples' counts.
    """
    begun: dict[Instance, float] = {}
    for name, counts in fitted.items():
        begun.update(_begun(code.functions[name], counts))
    calls: defaultdict[tuple[Instance, Line], float] = defaultdict(float)
    for instance, function in samples.items():
        name, sites = instance
        for site, callee in function.callees.items():
            made = min(begun.get((name, (*sites, site)), 0.0), entered(callee, executions))
            calls[instance, site.line] += made
    return dict(calls)


def _begun(code: FunctionCode, counts: Fitted) -> dict[Instance, float]:
    """How often the blocks of each inlined instance of a function followed others."""
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
