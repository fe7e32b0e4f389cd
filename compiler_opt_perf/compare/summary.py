# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summary of a comparison: costs against the default, by program and over the programs.

A cost is policy / default - 1: negative is better, for text size, RegAllocScore and compile time
alike. Costs of several modules are combined as geometric means of the ratios: of a program's
modules, then of the programs, so that a program with more or larger modules counts no more than the
others. Scores are compared function by function, by the ratio that trainings are rewarded by.

Intervals come from the bootstrap. For sizes and scores it resamples each program's modules: these
intervals are for other modules of the programs. For compile times it resamples each module's pairs
and takes their median: these intervals are for other compilations of the same modules.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from compiler_opt_perf.compare.comparison import (
    FORMAT,
    VERSION,
    Comparison,
    FunctionScores,
    ModuleComparison,
)
from compiler_opt_perf.cost.regalloc_score import log_ratio
from compiler_opt_perf.run.seeds import derive_seed

Floats = npt.NDArray[np.float64]

_DRAWS = 1000
_TAIL = 0.025
_LEAST_PAIRS = 3


def widening(number: int) -> float:
    """The factor by which bootstrap draws of a mean of `number` values vary too little.

    Draws with replacement of n values have (n - 1) / n of the variance. The variance of few values
    is itself uncertain, so Student's distribution replaces the normal one.
    """
    student = stdtrit(number - 1, 1 - _TAIL) / ndtri(1 - _TAIL)
    return float(student * (number / (number - 1)) ** 0.5)


@dataclass(frozen=True)
class CostChange:
    """A cost against the default: 0.01 is 1% worse, -0.01 is 1% better.

    Attributes:
      value: policy / default - 1, or a mean of such changes.
      low, high: the 95% interval; None with one module only, or fewer than three pairs of
        compilations.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, if there are any."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def resolution(self) -> float | None:
        """Half the interval's width: smaller differences are not resolved."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / 2


@dataclass(frozen=True)
class SummaryRow:
    """The summary of a module, of a program, or of all programs.

    Attributes:
      name: of the module or the program; "total".
      modules: how many.
      text_default, text_policy: machine code in bytes, summed.
      text: change of the size; None where there is no code to compare.
      score: change of RegAllocScore; None without functions to compare.
      compile_time: change of the cost of compiling, in the comparison's unit.
      decisions, with_pmu, exact, differing: as of ModuleComparison, summed.
    """

    name: str
    modules: int
    text_default: int
    text_policy: int
    text: CostChange | None
    score: CostChange | None
    compile_time: CostChange | None
    decisions: int
    with_pmu: int
    exact: int
    differing: int


@dataclass(frozen=True)
class Summary:
    """A comparison's rows.

    Attributes:
      modules, programs: rows by name.
      total: the geometric mean over the programs.
      weighted: programs whose functions' scores are weighted by calls. In the others each function
        counts once, since the profile has no calls of them.
      left_out: by reason, the modules ("module") and functions ("module: function") that the means
        of sizes and scores leave out.
    """

    modules: tuple[SummaryRow, ...]
    programs: tuple[SummaryRow, ...]
    total: SummaryRow
    weighted: tuple[str, ...]
    left_out: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Mean:
    """A mean of logarithms of ratios, with its bootstrap distribution.

    Attributes:
      value: NaN when there is nothing to compare.
      draws: [_DRAWS]; all NaN when there is too little to draw from.
    """

    value: float
    draws: Floats

    def change(self) -> CostChange | None:
        """The mean as a cost; None when there is nothing to compare."""
        if math.isnan(self.value):
            return None
        if np.isnan(self.draws).any():
            return CostChange(math.expm1(self.value))
        low, high = np.expm1(np.quantile(self.draws, (_TAIL, 1 - _TAIL)))
        return CostChange(math.expm1(self.value), float(low), float(high))


_NOTHING = _Mean(math.nan, np.full(_DRAWS, math.nan))


def summarise(comparison: Comparison) -> Summary:
    """Summarises a comparison; equal comparisons give equal intervals."""
    programs: dict[str, list[ModuleComparison]] = {}
    for module in comparison.modules:
        programs.setdefault(module.name.split("/")[0], []).append(module)
    weighted = tuple(name for name in sorted(programs) if any(map(_has_calls, programs[name])))

    def means(name: str, members: Sequence[ModuleComparison], weighted: bool) -> Sequence[_Mean]:
        random = np.random.default_rng(derive_seed(comparison.seed, "intervals", name))
        return _means(members, weighted, random)

    of_programs = {
        name: means(name, members, name in weighted) for name, members in sorted(programs.items())
    }
    total = [_mean_of_programs(column) for column in zip(*of_programs.values(), strict=True)]
    return Summary(
        modules=tuple(
            _row(one.name, [one], means(one.name, [one], _has_calls(one)))
            for one in comparison.modules
        ),
        programs=tuple(_row(name, programs[name], own) for name, own in of_programs.items()),
        total=_row("total", comparison.modules, total),
        weighted=weighted,
        left_out=_left_out(programs, weighted),
    )


def _row(name: str, modules: Sequence[ModuleComparison], means: Sequence[_Mean]) -> SummaryRow:
    text, score, compile_time = (mean.change() for mean in means)
    return SummaryRow(
        name=name,
        modules=len(modules),
        text_default=sum(module.text_default for module in modules),
        text_policy=sum(module.text_policy for module in modules),
        text=text,
        score=score,
        compile_time=compile_time,
        decisions=sum(module.decisions for module in modules),
        with_pmu=sum(module.with_pmu for module in modules),
        exact=sum(module.exact for module in modules),
        differing=sum(module.differing for module in modules),
    )


def _means(
    modules: Sequence[ModuleComparison], weighted: bool, random: np.random.Generator
) -> tuple[_Mean, _Mean, _Mean]:
    """Means of size, score and compile time over one program's modules."""
    sizes = [[(1.0, log)] if (log := _text_log(module)) is not None else [] for module in modules]
    scores = [
        [
            (float(one.calls or 0) if weighted else 1.0, log)
            for one in module.functions
            if (log := _score_log(one)) is not None
        ]
        for module in modules
    ]
    times = [_time_logs(module) for module in modules]
    return (
        _mean_of_modules(sizes, random),
        _mean_of_modules(scores, random),
        _mean_of_pairs(times, random),
    )


def _mean_of_modules(
    modules: Sequence[Sequence[tuple[float, float]]], random: np.random.Generator
) -> _Mean:
    """Weighted mean of the (weight, logarithm) pairs of all modules; resamples whole modules."""
    sums = np.array([(sum(w for w, _ in one), sum(w * log for w, log in one)) for one in modules])
    weights, logs = sums[sums[:, 0] > 0].T
    number = len(weights)
    if not number:
        return _NOTHING
    value = float(logs.sum() / weights.sum())
    if number == 1:
        return _Mean(value, _NOTHING.draws)
    drawn = random.integers(number, size=(_DRAWS, number))
    means = logs[drawn].sum(axis=1) / weights[drawn].sum(axis=1)
    return _Mean(value, value + widening(number) * (means - value))


def _mean_of_pairs(modules: Sequence[Floats], random: np.random.Generator) -> _Mean:
    """Mean over the modules of the median of each module's pairs; resamples pairs."""
    value = float(np.mean([np.median(logs) for logs in modules]))
    number = min(map(len, modules))
    if number < _LEAST_PAIRS:
        return _Mean(value, _NOTHING.draws)
    medians = [np.median(random.choice(logs, size=(_DRAWS, len(logs))), axis=1) for logs in modules]
    return _Mean(value, value + widening(number) * (np.mean(medians, axis=0) - value))


def _mean_of_programs(programs: Sequence[_Mean]) -> _Mean:
    """Mean over the programs, each with the same weight; leaves out those without a value."""
    known = [mean for mean in programs if not math.isnan(mean.value)]
    if not known:
        return _NOTHING
    draws = np.mean([mean.draws for mean in known], axis=0)
    return _Mean(float(np.mean([mean.value for mean in known])), draws)


def _text_log(module: ModuleComparison) -> float | None:
    if not (module.text_default and module.text_policy):
        return None
    return math.log(module.text_policy / module.text_default)


def _score_log(function: FunctionScores) -> float | None:
    if function.default is None or function.policy is None:
        return None
    return log_ratio(function.default, function.policy)


def _time_logs(module: ModuleComparison) -> Floats:
    """[pairs]"""
    logs = np.log(module.compile_policy) - np.log(module.compile_default)
    return np.asarray(logs, np.float64)


def _has_calls(module: ModuleComparison) -> bool:
    return any(one.calls for one in module.functions if _score_log(one) is not None)


def _left_out(
    programs: Mapping[str, Sequence[ModuleComparison]], weighted: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    names: dict[str, list[str]] = {}
    for program, modules in sorted(programs.items()):
        for module in modules:
            if _text_log(module) is None:
                names.setdefault("modules without code, of the size", []).append(module.name)
            for one in module.functions:
                reason = _why_left_out(one, program in weighted)
                if reason is not None:
                    names.setdefault(reason, []).append(f"{module.name}: {one.name}")
    return {reason: tuple(places) for reason, places in names.items()}


def _why_left_out(function: FunctionScores, weighted: bool) -> str | None:
    """Why a function is not in the mean of scores; None if it is."""
    if function.default is None:
        return "functions without an eviction under the default policy, of the score"
    if function.policy is None:
        return "functions without an eviction under the policy, of the score"
    if weighted and not function.calls:
        return "functions that the profiled run did not call, of the score"
    return None


def to_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison with its summary, for `write_json`; read it with `read_comparison`."""
    summary = summarise(comparison)
    return {
        "format": FORMAT,
        "version": VERSION,
        **asdict(comparison),
        "summary": {
            "total": _row_json(summary.total),
            "programs": [_row_json(row) for row in summary.programs],
            "weighted_by_calls": summary.weighted,
            "left_out": dict(summary.left_out),
        },
    }


def _row_json(row: SummaryRow) -> dict[str, Any]:
    value = asdict(row)
    for name in ("text", "score", "compile_time"):
        change = getattr(row, name)
        if change is not None:
            value[name]["resolution"] = change.resolution
    return value
