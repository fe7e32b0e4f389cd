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

#: "shown" is without a limit.
Verdict = Literal["worse", "better", "same", "shown"]
_UNITS = {"perf": "instructions", "qemu": "instructions", "time": "seconds", "none": ""}


@dataclass(frozen=True)
class Finding:
    """One metric of a module, of a program or in total, compared.

    Attributes:
      metric, unit: of the values.
      level, name: which module or program the values are of; the total's name is "total".
      before, after: the values with the baseline and with the candidate.
      allowed: how much worse the second may be; None where there is no limit.
      why: the reasons, where the verdict is "worse".
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
    """The verdict on a candidate.

    Attributes:
      problem: name of what is decided.
      modules: how many were compared.
      changed: names of the inputs that differ from the baseline's.
      findings: of totals, then programs, then modules; of modules only those worse or better.
      changes: a sentence for each changed input, with path and digest on both sides.
    """

    problem: str
    modules: int
    changed: tuple[str, ...]
    findings: tuple[Finding, ...]
    changes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[Finding, ...]:
        """The findings that fail the gate."""
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
    names = [[(row.name, row.digest) for row in side.modules] for side in (baseline, candidate)]
    if names[0] != names[1]:
        raise CompareError("the candidate was measured on other modules than the baseline")
    if _runs(baseline.setup) != _runs(candidate.setup):
        raise CompareError(
            "the candidate was measured by other recorded runs, or for another CPU, than the "
            "baseline: record a baseline by these"
        )
    pairs = list(zip(baseline.modules, candidate.modules, strict=True))
    linked = {row.name: row for row in candidate.programs}
    programs = [(row, linked[row.name]) for row in baseline.programs if row.name in linked]
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
    """Digests of the recorded runs by program, and of the CPU file."""
    traces = {program: trace.digest for program, trace in setup.traces.items()}
    return traces, "" if setup.cpu is None else setup.cpu.digest


_AnyPair = TypeVar("_AnyPair", Pair, ProgramPair)


def _groups(level: Level, pairs: Sequence[_AnyPair]) -> dict[str, list[_AnyPair]]:
    """The pairs of each module or program, or of the total, by name."""
    groups: dict[str, list[_AnyPair]] = {}
    for pair in sorted(pairs, key=lambda pair: (pair[0].program, pair[0].name)):
        names = {"total": "total", "program": pair[0].program, "module": pair[0].name}
        groups.setdefault(names[level], []).append(pair)
    return groups


def _judged(
    metric: Metric, level: Level, name: str, pairs: Sequence[Any], limits: Limits
) -> Finding | None:
    """The finding; None where there are no values to compare."""
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
