# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The metrics that the gate compares, as a table."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from compiler_opt_perf.compare.baseline import ModuleRow, ProgramRow, Setup, detail_of
from compiler_opt_perf.cost.regalloc_score import log_ratio
from compiler_opt_perf.policy.problem import PROBLEMS

#: A module in the baseline and with the candidate.
Pair = tuple[ModuleRow, ModuleRow]
#: A program, likewise.
ProgramPair = tuple[ProgramRow, ProgramRow]
#: The value with the baseline and with the candidate; None where there is no such value.
Values = tuple[float, float] | None
#: The unit of shares, from 0 to 1.
SHARE = "share"


@dataclass(frozen=True)
class Metric:
    """One figure of a module, of the modules of a program, or of all.

    Attributes:
      name: as in the file of limits.
      unit: of its values; the unit of `effort` is in the setup.
      worse: 1 when more is worse, -1 when less is, 0 when any change is.
      values: of some modules, or programs.
      needs_figures: whether only modules count that compile on both sides.
      of_programs: whether the metric is of whole programs, not of modules.
      spread: the range of repeated measurements, over both sides.
      applies: whether the setups of both sides have the metric.
    """

    name: str
    unit: str
    worse: int
    values: Callable[[Sequence[Any]], Values]
    needs_figures: bool = True
    of_programs: bool = False
    spread: Callable[[Sequence[Pair]], float] = lambda pairs: 0.0
    applies: Callable[[Setup, Setup], bool] = lambda before, after: True

    def worsening(self, before: float, after: float) -> float:
        """How much worse the second value is; below 0 where it is better."""
        change = after - before
        return self.worse * change if self.worse else abs(change)


def _count(is_so: Callable[[Any], bool]) -> Callable[[Sequence[Any]], Values]:
    return _sum(lambda row: float(is_so(row)))


def _sum(of: Callable[[Any], float | None]) -> Callable[[Sequence[Any]], Values]:
    """Over rows that have a value on both sides; None where there are no such rows."""

    def values(pairs: Sequence[Any]) -> Values:
        sides = [(of(one), of(other)) for one, other in pairs]
        known = [(one, other) for one, other in sides if one is not None and other is not None]
        if not known:
            return None
        return math.fsum(one for one, _ in known), math.fsum(other for _, other in known)

    return values


def _share(of: Callable[[ModuleRow], int]) -> Callable[[Sequence[Pair]], Values]:
    """The share of all decisions; None where a side takes none."""

    def values(pairs: Sequence[Pair]) -> Values:
        parts = [sum(map(of, side)) for side in zip(*pairs, strict=True)]
        wholes = [sum(row.decisions for row in side) for side in zip(*pairs, strict=True)]
        return (parts[0] / wholes[0], parts[1] / wholes[1]) if all(wholes) else None

    return values


def _scores(pairs: Sequence[Pair]) -> Values:
    """The geometric mean of the functions' ratios, each function once; 1 in the baseline.

    A score is per call of its function, so that sums mean nothing (`regalloc_score.score_ratio`).
    Functions that took a decision on one side only have no ratio.
    """
    logarithms = []
    for one, other in pairs:
        before, after = detail_of(one).scores, detail_of(other).scores
        shared = sorted(before.keys() & after.keys())
        logarithms += [log_ratio(before[name], after[name]) for name in shared]
    return (1.0, math.exp(math.fsum(logarithms) / len(logarithms))) if logarithms else None


def _effort(pairs: Sequence[Pair]) -> Values:
    medians = [[statistics.median(run.effort) for run in side] for side in zip(*pairs, strict=True)]
    return math.fsum(medians[0]), math.fsum(medians[1])


def _peak(pairs: Sequence[Pair]) -> Values:
    """The largest module's memory: a machine must have it."""
    peaks = [[statistics.median(run.memory) for run in side] for side in zip(*pairs, strict=True)]
    return float(max(peaks[0])), float(max(peaks[1]))


def _range(samples: Sequence[float]) -> float:
    return max(samples) - min(samples)


def _effort_spread(pairs: Sequence[Pair]) -> float:
    """The spread of a sum of independent measurements."""
    return math.hypot(*(_range(row.effort) for pair in pairs for row in pair))


def _memory_spread(pairs: Sequence[Pair]) -> float:
    return float(max(_range(row.memory) for pair in pairs for row in pair))


def _profiled(before: Setup, after: Setup) -> bool:
    return bool(before.profiles)


def _replayed(before: Setup, after: Setup) -> bool:
    return bool(before.traces)


def _simulated(before: Setup, after: Setup) -> bool:
    return _replayed(before, after) and before.cpu is not None


def _scored(before: Setup, after: Setup) -> bool:
    return PROBLEMS[after.problem].score_in_log


def _both_efforts(before: Setup, after: Setup) -> bool:
    return before.effort == after.effort != "none"


METRICS: tuple[Metric, ...] = (
    Metric("failures", "modules", 1, _count(lambda row: row.status == "failed"), False),
    Metric("crashes", "modules", 1, _count(lambda row: row.status == "crashed"), False),
    Metric("timeouts", "modules", 1, _count(lambda row: row.status == "timeout"), False),
    Metric("nondeterminism", "modules", 1, _count(lambda row: len(row.objects) > 1)),
    Metric(
        *("modes", "modules", 1, _count(lambda row: bool(row.modes))),
        applies=lambda before, after: after.release is not None,
    ),
    Metric("fallbacks", "warnings", 1, _sum(lambda row: row.fallbacks)),
    Metric(
        *("stale", "functions", 1, _sum(lambda row: row.stale)),
        applies=lambda before, after: bool(after.profiles),
    ),
    Metric("with-pmu", SHARE, -1, _share(lambda row: row.with_pmu), applies=_profiled),
    Metric("text", "bytes", 1, _sum(lambda row: row.text)),
    Metric("linked", "bytes", 1, _sum(lambda row: row.linked), of_programs=True),
    Metric("unlinked", "programs", 1, _count(lambda row: not row.is_ok), False, of_programs=True),
    Metric(
        "instructions", "instructions", 1, _sum(lambda row: row.instructions), applies=_replayed
    ),
    Metric("cycles", "cycles", 1, _sum(lambda row: row.cycles), applies=_simulated),
    Metric("unreplayed", "modules", 1, _count(lambda row: bool(row.unreplayed)), applies=_replayed),
    Metric("score", "ratio", 1, _scores, applies=_scored),
    Metric("effort", "", 1, _effort, spread=_effort_spread, applies=_both_efforts),
    Metric("memory", "KiB", 1, _peak, spread=_memory_spread),
    Metric("decisions", "decisions", 0, _sum(lambda row: row.decisions)),
    Metric("differing", SHARE, 0, _share(lambda row: row.differing)),
)
