# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares predicted with measured cycles of blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.blocks.block_code import canonical
from compiler_opt_perf.blocks.config import LearnedError
from compiler_opt_perf.blocks.data import DataFile, cpus_of, samples
from compiler_opt_perf.blocks.graphs import PMU_INPUTS
from compiler_opt_perf.blocks.graphs import Floats as Floats32
from compiler_opt_perf.blocks.model import CostModel, counted
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.seeds import derive_seed

Floats = npt.NDArray[np.float64]
# The largest miss rate of an instruction in the group "few misses".
_FEW = 0.25
_L1_MISS = PMU_INPUTS.index("l1_miss")
_RESAMPLES, _FEWEST_BLOCKS = 200, 10

HEAD = (
    "| blocks | predicted by | of so many | MAPE | median error | median of predicted / measured | "
    "Kendall's tau |\n|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Figures:
    """Statistics of predictions p and measured cycles t; None where undefined.

    Attributes:
      blocks: number of blocks with both.
      mean_error, median_error: mean and median of |p / t - 1|.
      median_ratio: median of p / t.
      tau: Kendall's rank correlation; None with fewer than two blocks.
      mean_error_interval, tau_interval: 95% bootstrap confidence intervals over blocks; None if
        not computed.
    """

    blocks: int
    mean_error: float | None = None
    median_error: float | None = None
    median_ratio: float | None = None
    tau: float | None = None
    mean_error_interval: tuple[float, float] | None = None
    tau_interval: tuple[float, float] | None = None

    def row(self, blocks: str, predictor: str) -> str:
        """A row of the table that HEAD begins."""
        shares = [_shown(error, ".1%") for error in (self.mean_error, self.median_error)]
        cells = [blocks, predictor, f"{self.blocks:,}", *shares]
        cells += [_shown(self.median_ratio, ".2f"), _shown(self.tau, ".3f")]
        cells[3] += _shown_interval(self.mean_error_interval, ".1%")
        cells[6] += _shown_interval(self.tau_interval, ".3f")
        return "| " + " | ".join(cells) + " |"


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _shown_interval(interval: tuple[float, float] | None, form: str) -> str:
    return "" if interval is None else f" ({interval[0]:{form}} to {interval[1]:{form}})"


def figures(
    predicted: Floats, measured: Floats, blocks: npt.NDArray[np.int64] | None = None
) -> Figures:
    """Compares rows whose prediction is finite and above 0.

    Args:
      predicted, measured: [N], cycles.
      blocks: [N], number of each row's block. With enough blocks there are confidence intervals,
        by a bootstrap that resamples blocks with all of their rows (Efron 1979).
    """
    # scipy.stats loads slowly, and workers that import this module do not need it.
    from scipy.stats import kendalltau

    known = np.isfinite(predicted) & (predicted > 0)
    predicted, measured = predicted[known], measured[known]
    if not len(measured):
        return Figures(0)
    error = np.abs(predicted / measured - 1)
    tau = float(kendalltau(predicted, measured).statistic) if len(measured) > 1 else np.nan
    found = Figures(
        blocks=len(measured),
        mean_error=float(np.mean(error)),
        median_error=float(np.median(error)),
        median_ratio=float(np.median(predicted / measured)),
        tau=tau if np.isfinite(tau) else None,
    )
    names, block_of_row = np.unique([] if blocks is None else blocks[known], return_inverse=True)
    if len(names) < _FEWEST_BLOCKS:
        return found
    random = np.random.default_rng(derive_seed(0, "intervals"))
    means, taus = np.empty(_RESAMPLES), np.empty(_RESAMPLES)
    for n in range(_RESAMPLES):
        drawn = np.bincount(random.integers(len(names), size=len(names)), minlength=len(names))
        rows = np.repeat(np.arange(len(block_of_row)), drawn[block_of_row])
        means[n] = np.mean(error[rows])
        taus[n] = kendalltau(predicted[rows], measured[rows]).statistic
    return replace(found, mean_error_interval=_interval(means), tau_interval=_interval(taus))


def _interval(replicates: Floats) -> tuple[float, float]:
    """The interval that holds 95% of the replicates."""
    low, high = np.nanquantile(replicates, (0.025, 0.975))
    return float(low), float(high)


def rate_groups(name: str, pmu: Sequence[Floats32 | None]) -> dict[str, npt.NDArray[np.bool_]]:
    """Groups blocks with known miss rates by their largest first-level miss rate."""
    shares = np.array(
        [np.nan if rows is None else np.nanmax(np.append(rows[:, _L1_MISS], 0)) for rows in pmu]
    )
    return {
        f"{name}, no misses": shares == 0,
        f"{name}, few misses": (shares > 0) & (shares <= _FEW),
        f"{name}, many misses": shares > _FEW,
    }


def groups(name: str, pages: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.bool_]]:
    """Groups blocks: all, without memory accesses, with memory accesses."""
    return {name: pages >= 0, f"{name}, no memory": pages == 0, f"{name}, memory": pages > 0}


@dataclass(frozen=True)
class Judgement:
    """The result of `evaluate`.

    Attributes:
      model: the model's name.
      cpu: LLVM's name of the CPU.
      figures: group of blocks -> statistics.
      refused: reason -> number of blocks without prediction.
      points: name of a file -> predicted and measured cycles, [blocks] each; NaN without a
        prediction.
    """

    model: str
    cpu: str
    figures: Mapping[str, Figures]
    refused: Mapping[str, int]
    points: Mapping[str, tuple[Floats, Floats]]

    def text(self) -> str:
        """The statistics as a Markdown table."""
        rows = [group.row(name, self.model) for name, group in self.figures.items()]
        lines = [f"{count:,} blocks refused: {why}" for why, count in self.refused.items()]
        return HEAD + "\n".join([*rows, *lines]) + "\n"


def evaluate(model: CostModel, files: Sequence[DataFile], purpose: str | None) -> Judgement:
    """Evaluates a model on measured blocks.

    Args:
      model: the model.
      files: measured blocks of one CPU.
      purpose: one of PURPOSES; None for all blocks.

    Raises:
      LearnedError: there are no such blocks; they were measured on several CPUs; or the model
        does not know the CPU.
    """
    if len(cpus_of(files)) > 1:
        raise LearnedError(
            f"the files are of several CPUs, {', '.join(cpus_of(files))}: give files of one CPU"
        )
    every = samples(files, model.config)
    chosen = np.arange(len(every.codes)) if purpose is None else every.of_purpose(purpose)
    if not len(chosen):
        programs = ", ".join(model.config.test_programs) or "none"
        raise LearnedError(
            f"no blocks for {purpose}: the model's test programs are {programs}; --blocks=all "
            "takes all blocks"
        )
    codes = [every.codes[block] for block in chosen]
    pmu = [every.pmu[block] for block in chosen]
    with Pool() as pool:
        predicted, problems = model.predict(codes, files[0].cpu, pmu, pool)
    measured, pages = every.cycles[chosen].astype(np.float64), every.pages[chosen]
    numbers: dict[bytes, int] = {}
    blocks = np.array([numbers.setdefault(canonical(code), len(numbers)) for code in codes])
    found, points = {}, {}
    for number, file in enumerate(files):
        inside = every.files[chosen] == number
        name = file.path.stem
        points[name] = predicted[inside], measured[inside]
        rated = any(known is not None for known, here in zip(pmu, inside, strict=True) if here)
        by_rate = rate_groups(name, pmu) if rated else {}
        # `pages` does not count the harness's pages, so rated blocks are not grouped by it.
        parts = {name: pages >= 0, **by_rate} if rated else groups(name, pages)
        for group, members in parts.items():
            both = inside & members
            found[group] = figures(predicted[both], measured[both], blocks[both])
    return Judgement(model.config.name, files[0].cpu, found, counted(problems), points)
