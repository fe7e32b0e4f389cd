# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a candidate's measurements with a baseline's, within limits."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from compiler_opt_perf.gate.baseline import Baseline, changed_inputs
from compiler_opt_perf.gate.errors import GateError
from compiler_opt_perf.gate.limits import LEVELS, Level, Limits, MetricLimits
from compiler_opt_perf.gate.metrics import METRICS, Metric, Pair
from compiler_opt_perf.gate.why import Why, why

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
class Result:
    """A candidate, judged.

    Attributes:
      problem: name of what is decided.
      modules: how many were compared.
      changed: what the candidate was measured with that the baseline was not.
      findings: of totals, then programs, then modules. Of modules, only what is worse or better.
    """

    problem: str
    modules: int
    changed: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def worse(self) -> tuple[Finding, ...]:
        """The findings that the gate fails for."""
        return tuple(one for one in self.findings if one.verdict == "worse")


def check(baseline: Baseline, candidate: Baseline, limits: Limits) -> Result:
    """Compares two measurements of the same modules.

    Raises:
      GateError: they are of other modules or of another problem, or a file is damaged.
    """
    if baseline.setup.problem != candidate.setup.problem:
        raise GateError(
            f"the candidate decides {candidate.setup.problem}, the baseline "
            f"{baseline.setup.problem}: record a baseline of the same problem"
        )
    names = [[(run.name, run.digest) for run in side.modules] for side in (baseline, candidate)]
    if names[0] != names[1]:
        raise GateError("the candidate was measured on other modules than the baseline")
    pairs = list(zip(baseline.modules, candidate.modules, strict=True))
    findings = [
        finding
        for level in LEVELS
        for metric in METRICS
        if metric.applies(baseline.setup, candidate.setup)
        for name, members in _groups(level, pairs)
        for finding in _judged(metric, level, name, members, limits)
    ]
    shown = [
        _with_unit(one, candidate, baseline, pairs)
        for one in findings
        if one.level != "module" or one.verdict in ("worse", "better")
    ]
    changed = changed_inputs(baseline.setup, candidate.setup)
    return Result(baseline.setup.problem, len(pairs), changed, tuple(shown))


def _groups(level: Level, pairs: Sequence[Pair]) -> list[tuple[str, list[Pair]]]:
    """What a level has values of, with the modules of each, by name."""
    if level == "total":
        return [("total", list(pairs))]
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair[0].program if level == "program" else pair[0].name, []).append(pair)
    return sorted(groups.items())


def _judged(
    metric: Metric, level: Level, name: str, pairs: Sequence[Pair], limits: Limits
) -> Iterator[Finding]:
    if metric.needs_figures:
        pairs = [pair for pair in pairs if pair[0].is_ok and pair[1].is_ok]
    values = metric.values(pairs) if pairs else None
    if values is None:
        return
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
    yield Finding(metric.name, metric.unit, level, name, before, after, allowed, verdict)


def _with_unit(
    finding: Finding, candidate: Baseline, baseline: Baseline, pairs: Sequence[Pair]
) -> Finding:
    """The finding with its unit and, if it is worse, with why that is so."""
    unit = finding.unit or _UNITS[candidate.setup.effort]
    reason = None
    if finding.verdict == "worse":
        of = dict(_groups(finding.level, pairs))[finding.name]
        reason = why(finding.metric, of, baseline, candidate)
    return dataclasses.replace(finding, unit=unit, why=reason)


def to_json(result: Result) -> dict[str, Any]:
    """The result as JSON values."""
    fields: dict[str, Any] = msgspec.to_builtins(result)
    return {"verdict": "worse" if result.worse else "passes", **fields}
