# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Why something got worse: what was changed, what the compiler says, functions, decisions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from compiler_opt_perf.compare.baseline import (
    Baseline,
    Detail,
    ModuleRow,
    changed_inputs,
    detail_of,
)
from compiler_opt_perf.compare.metrics import Pair
from compiler_opt_perf.cost.regalloc_score import log_ratio

_MOST_MODULES = 3
_MOST_FUNCTIONS = 5
_MOST_DECISIONS = 5
# The field of `Detail` that has each function's part of a metric.
_OF_FUNCTIONS = {
    "text": "functions",
    "linked": "functions",
    "score": "scores",
    "instructions": "instructions",
    "cycles": "cycles",
}
# Metrics that a policy's decisions change.
_OF_DECISIONS = {*_OF_FUNCTIONS, "differing", "decisions"}
# Metrics that a profile changes.
_OF_PROFILES = {*_OF_DECISIONS, "with-pmu", "stale"}
# The status of a module that has these metrics.
_FAILING = {"failures": "failed", "crashes": "crashed", "timeouts": "timeout"}
# A fact on a module, by metric; empty where there is none.
_FACTS: dict[str, Callable[[ModuleRow], str]] = {
    "nondeterminism": lambda row: (
        f"{row.name}: {len(row.objects)} different object files of the same compilation"
        if len(row.objects) > 1
        else ""
    ),
    "modes": lambda row: row.modes,
    "fallbacks": lambda row: (
        f"{row.name}: {row.warnings[0]}" if row.fallbacks and row.warnings else ""
    ),
    "unreplayed": lambda row: f"{row.name}: {row.unreplayed}" if row.unreplayed else "",
}


@dataclass(frozen=True)
class FunctionChange:
    """A function that got worse, in the metric's unit; 0 where there is no such function."""

    module: str
    function: str
    before: float
    after: float


@dataclass(frozen=True)
class DecisionChange:
    """A decision that both sides take differently, by its key (docs/reference/features.md)."""

    module: str
    key: str
    before: int
    after: int


_Change = TypeVar("_Change")


@dataclass(frozen=True)
class Why:
    """Why a metric is worse.

    Attributes:
      causes: sentences on what was changed, and on what is known of the change.
      functions: the functions that got worse most, the worst first, each in one module.
      differing: how many decisions both sides take differently.
      decisions: some of these decisions, those in the functions above first, each in one module.
      further: how many other functions got worse, copies in other modules included, and by how much
        together; scores do not add up, so that their sum is 0.
    """

    causes: tuple[str, ...]
    functions: tuple[FunctionChange, ...] = ()
    differing: int = 0
    decisions: tuple[DecisionChange, ...] = ()
    further: tuple[int, float] = (0, 0.0)


def why(metric: str, pairs: Sequence[Pair], baseline: Baseline, candidate: Baseline) -> Why:
    """Explains why a metric of some modules is worse. Raises CompareError: a file is damaged."""
    changed = changed_inputs(baseline.setup, candidate.setup)
    causes = []
    if changed:
        causes.append(f"changed: {', '.join(changed)}")
    else:
        causes.append(_nothing_changed(baseline, candidate))
    causes += _said(metric, pairs, candidate)
    if metric in _OF_PROFILES:
        causes += _profile_facts(pairs, baseline, candidate)
    if metric not in _OF_DECISIONS:
        return Why(tuple(causes))
    details = [
        (pair[0].name, detail_of(pair[0]), detail_of(pair[1]))
        for pair in pairs
        if pair[0].is_ok and pair[1].is_ok
    ]
    functions = _functions(metric, details) if metric in _OF_FUNCTIONS else []
    differing = _decisions(details, {one.function for one in functions})
    named = _first_of_each(functions, lambda one: one.function)[:_MOST_FUNCTIONS]
    others = [one for one in functions if one not in named]
    grown = 0.0 if metric == "score" else sum(one.after - one.before for one in others)
    decisions = _first_of_each(differing, lambda one: one.key)[:_MOST_DECISIONS]
    return Why(tuple(causes), tuple(named), len(differing), tuple(decisions), (len(others), grown))


def _first_of_each(changes: Sequence[_Change], what: Callable[[_Change], str]) -> list[_Change]:
    """One change for each `what`: several modules may have copies, as of an inline function."""
    first: dict[str, _Change] = {}
    for change in changes:
        first.setdefault(what(change), change)
    return list(first.values())


def _nothing_changed(baseline: Baseline, candidate: Baseline) -> str:
    before, after = baseline.environment, candidate.environment
    names = ("machine", "cores", "system", "package")
    others = [
        f"{name} {getattr(after, name)}, before {getattr(before, name)}"
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]
    where = f"; it was measured elsewhere: {'; '.join(others)}" if others else ""
    return f"compiler, policy and profiles are those of the baseline{where}"


def _said(metric: str, pairs: Sequence[Pair], candidate: Baseline) -> list[str]:
    """Facts on the modules that are worse, and messages of compiler and linker."""
    said = []
    release = candidate.setup.release
    if metric == "modes" and release is not None and "holds another policy" in release.is_of:
        said.append(release.is_of)
    if metric in _FAILING:
        status = _FAILING[metric]
        said += [
            f"{after.name}: {after.message}"
            for before, after in pairs
            if after.status == status != before.status
        ]
    elif metric in _FACTS:
        said += [fact for _, after in pairs if (fact := _FACTS[metric](after))]
    elif metric == "unlinked":
        names = {after.program for _, after in pairs}
        said += [
            f"{one.name}: {one.message}"
            for one in candidate.programs
            if one.message and one.name in names
        ]
    more = len(said) - _MOST_MODULES
    return said[:_MOST_MODULES] + ([f"and {more} more"] if more > 0 else [])


def _profile_facts(pairs: Sequence[Pair], baseline: Baseline, candidate: Baseline) -> list[str]:
    """Facts that hold for the candidate's profiles, and did not for the baseline's."""
    facts = []
    before, after = baseline.setup.profiles, candidate.setup.profiles
    for program in sorted(before):
        which = f"the profile of {program}" if program else "the profile"
        if program not in after:
            facts.append(f"{which} is not given any more")
        else:
            names = [own[program].is_of.partition(",")[0] for own in (before, after)]
            if names[0] != names[1]:
                facts.append(
                    f"{which} is of another program: it was collected of {names[1]!r}, that of "
                    f"the baseline of {names[0]!r}"
                )
    stale = [sum(pair[side].stale for pair in pairs) for side in (0, 1)]
    if stale[1] > stale[0]:
        facts.append(
            f"the profile is stale: {stale[1]} functions have changed since it was collected, "
            f"{stale[0]} with that of the baseline; collect it again"
        )
    known = {line for pair in pairs for line in pair[0].warnings}
    new = dict.fromkeys(line for pair in pairs for line in pair[1].warnings if line not in known)
    return facts + [f"the compiler warns: {line}" for line in new][:_MOST_MODULES]


def _functions(metric: str, details: Sequence[tuple[str, Detail, Detail]]) -> list[FunctionChange]:
    changes = []
    for module, before, after in details:
        one, other = (getattr(side, _OF_FUNCTIONS[metric]) for side in (before, after))
        changes += [
            FunctionChange(module, name, float(one.get(name, 0)), float(other.get(name, 0)))
            for name in sorted(one.keys() | other.keys())
        ]

    def worsening(one: FunctionChange) -> float:
        # Scores are per call of their function: only ratios can be compared.
        if metric == "score":
            return log_ratio(one.before, one.after)
        return one.after - one.before

    worse = [change for change in changes if change.after > change.before]
    return sorted(worse, key=lambda one: (-worsening(one), one.module, one.function))


def _decisions(
    details: Sequence[tuple[str, Detail, Detail]], functions: set[str]
) -> list[DecisionChange]:
    changes = [
        DecisionChange(module, key, before.decisions[key], after.decisions[key])
        for module, before, after in details
        for key in sorted(before.decisions.keys() & after.decisions.keys())
        if before.decisions[key] != after.decisions[key]
    ]
    # A key begins with the function that the decision is in.
    return sorted(changes, key=lambda one: one.key.partition(" ")[0] not in functions)
