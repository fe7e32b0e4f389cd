# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a candidate's measurements with a baseline's, within limits."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from compiler_opt_perf.compare.baseline import Baseline, Setup, changed_inputs, changes
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.limits import LEVELS, Level, Limits, MetricLimits
from compiler_opt_perf.compare.metrics import METRICS, Metric, Pair, ProgramPair
from compiler_opt_perf.compare.why import Why, why

#: "shown": there is no limit.
Verdict = Literal["worse", "better", "same", "shown"]
_UNITS = {"perf": "instructions", "qemu": "instructions", "time": "seconds", "none": ""}


@dataclass(frozen=True)
class Finding:
    """One value compared.

    Attributes:
      metric: its name.
      unit: of the values.
      level: what it is of.
      name: of the module or program; "total".
      before, after: with the baseline and with the candidate.
      allowed: how much worse it may be; None for as much as it likes.
      why: for what is worse.
    """

    metric: str
    unit: str
    level: Level
    name: str
    before: float
    after: float
    allowed: float | None
    verdict: Verdict
    why: Why | None = None


@dataclass(frozen=True)
class CheckResult:
    """A candidate, judged.

    Attributes:
      problem: name of what is decided.
      modules: how many were compared.
      changed: what the candidate was measured with that the baseline was not.
      changes: the same with path and digest on both sides, a sentence each.
      findings: of totals, then programs, then modules. Of modules, only what is worse or better.
    """

    problem: str
    modules: int
    changed: tuple[str, ...]
    findings: tuple[Finding, ...]
    changes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[Finding, ...]:
        """The findings that the gate fails for."""
        return tuple(one for one in self.findings if one.verdict == "worse")


def check(baseline: Baseline, candidate: Baseline, limits: Limits) -> CheckResult:
    """Compares two measurements of the same modules.

    Raises:
      CompareError: they are of other modules, other recorded runs or another problem.
    """
    if baseline.setup.problem != candidate.setup.problem:
        raise CompareError(
            f"the candidate decides {candidate.setup.problem}, the baseline "
            f"{baseline.setup.problem}: record a baseline of the same problem"
        )
    names = [[(run.name, run.digest) for run in side.modules] for side in (baseline, candidate)]
    if names[0] != names[1]:
        raise CompareError("the candidate was measured on other modules than the baseline")
    if _runs(baseline.setup) != _runs(candidate.setup):
        raise CompareError(
            "the candidate was measured by other recorded runs, or for another CPU, than the "
            "baseline: record a baseline by these"
        )
    pairs = list(zip(baseline.modules, candidate.modules, strict=True))
    linked = {run.name: run for run in candidate.programs}
    programs = [(run, linked[run.name]) for run in baseline.programs if run.name in linked]
    findings = []
    for level in LEVELS:
        modules_of, programs_of = _groups(level, pairs), _groups(level, programs)
        for metric in METRICS:
            if not metric.applies(baseline.setup, candidate.setup):
                continue
            for name, members in (programs_of if metric.of_programs else modules_of).items():
                found = _judged(metric, level, name, members, limits)
                if found is None or (level == "module" and found.verdict in ("same", "shown")):
                    continue
                unit, reason = found.unit or _UNITS[candidate.setup.effort], None
                if found.verdict == "worse":
                    reason = why(metric.name, modules_of[name], baseline, candidate)
                findings.append(dataclasses.replace(found, unit=unit, why=reason))
    changed = changed_inputs(baseline.setup, candidate.setup)
    return CheckResult(
        baseline.setup.problem,
        len(pairs),
        changed,
        tuple(findings),
        changes(baseline.setup, candidate.setup),
    )


def _runs(setup: Setup) -> tuple[dict[str, str], str]:
    """What recorded runs are replayed, by content."""
    traces = {program: trace.digest for program, trace in setup.traces.items()}
    return traces, "" if setup.cpu is None else setup.cpu.digest


_AnyPair = TypeVar("_AnyPair", Pair, ProgramPair)


def _groups(level: Level, pairs: Sequence[_AnyPair]) -> dict[str, list[_AnyPair]]:
    """What a level has values of, with the modules or programs of each, by name."""
    groups: dict[str, list[_AnyPair]] = {}
    for pair in sorted(pairs, key=lambda pair: (pair[0].program, pair[0].name)):
        names = {"total": "total", "program": pair[0].program, "module": pair[0].name}
        groups.setdefault(names[level], []).append(pair)
    return groups


def _judged(
    metric: Metric, level: Level, name: str, pairs: Sequence[Any], limits: Limits
) -> Finding | None:
    """The values compared; None where there are none."""
    if metric.of_programs and level == "module":
        return None
    if metric.needs_figures:
        pairs = [pair for pair in pairs if pair[0].is_ok and pair[1].is_ok]
    values = metric.values(pairs) if pairs else None
    if values is None:
        return None
    before, after = values
    limit = limits.get(metric.name, MetricLimits())
    allowed = limit.allowed(level, before, metric.spread(pairs))
    verdict: Verdict = "same"
    if allowed is None:
        verdict = "shown"
    elif metric.worsening(before, after) > allowed:
        verdict = "worse"
    elif metric.worse and -metric.worsening(before, after) > allowed:
        verdict = "better"
    return Finding(metric.name, metric.unit, level, name, before, after, allowed, verdict)


def to_json(result: CheckResult) -> dict[str, Any]:
    """The result as JSON values."""
    fields: dict[str, Any] = msgspec.to_builtins(result)
    return {"verdict": "worse" if result.worse else "passes", **fields}
