# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges predicted cycles of blocks by measured ones."""

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
# Of so many of an instruction's loads: few misses.
_FEW = 0.25
_L1_MISS = PMU_INPUTS.index("l1_miss")
_RESAMPLES, _FEWEST_BLOCKS = 200, 10

HEAD = (
    "| blocks | predicted by | of so many | MAPE | median error | median of predicted / measured | "
    "Kendall's tau |\n|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Figures:
    """How predictions p compare with measured cycles t.

    Attributes:
      blocks: how many there are of both.
      mean_error, median_error: of |p / t - 1|; None without blocks, as what follows.
      median_ratio: of p / t.
      tau: Kendall's, of the ranks; None with less than two blocks.
      mean_error_interval, tau_interval: of 95%, for other blocks of that kind; None where they were
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
        shares = [_shown(one, ".1%") for one in (self.mean_error, self.median_error)]
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
    """Compares what there is a prediction of: blocks where it is finite and above 0.

    Args:
      blocks: which block each is of, any numbers; with them and enough blocks there are intervals,
        by the bootstrap over blocks (Efron 1979), all rows of each.
    """
    # Workers, which import this module, have no use for them.
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
    names, of = np.unique([] if blocks is None else blocks[known], return_inverse=True)
    if len(names) < _FEWEST_BLOCKS:
        return found
    random = np.random.default_rng(derive_seed(0, "intervals"))
    means, taus = np.empty(_RESAMPLES), np.empty(_RESAMPLES)
    for n in range(_RESAMPLES):
        drawn = np.bincount(random.integers(len(names), size=len(names)), minlength=len(names))
        rows = np.repeat(np.arange(len(of)), drawn[of])
        means[n] = np.mean(error[rows])
        taus[n] = kendalltau(predicted[rows], measured[rows]).statistic
    return replace(found, mean_error_interval=_interval(means), tau_interval=_interval(taus))


def _interval(replicates: Floats) -> tuple[float, float]:
    """The interval that holds 95% of them."""
    low, high = np.nanquantile(replicates, (0.025, 0.975))
    return float(low), float(high)


def rate_groups(name: str, pmu: Sequence[Floats32 | None]) -> dict[str, npt.NDArray[np.bool_]]:
    """Blocks of which misses are known, by the largest share of an instruction's loads."""
    shares = np.array(
        [np.nan if one is None else np.nanmax(np.append(one[:, _L1_MISS], 0)) for one in pmu]
    )
    return {
        f"{name}, no misses": shares == 0,
        f"{name}, few misses": (shares > 0) & (shares <= _FEW),
        f"{name}, many misses": shares > _FEW,
    }


def groups(name: str, pages: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.bool_]]:
    """All blocks, those that touched no memory and those that did."""
    return {name: pages >= 0, f"{name}, no memory": pages == 0, f"{name}, memory": pages > 0}


@dataclass(frozen=True)
class Judgement:
    """What `evaluate` found.

    Attributes:
      figures: by group of blocks.
      refused: blocks without prediction, by reason.
      points: predicted and measured cycles by file, [blocks] each; NaN where there is none.
    """

    model: str
    cpu: str
    figures: Mapping[str, Figures]
    refused: Mapping[str, int]
    points: Mapping[str, tuple[Floats, Floats]]

    def text(self) -> str:
        """A table, in Markdown."""
        rows = [one.row(name, self.model) for name, one in self.figures.items()]
        lines = [f"{count:,} blocks refused: {why}" for why, count in self.refused.items()]
        return HEAD + "\n".join([*rows, *lines]) + "\n"


def evaluate(model: CostModel, files: Sequence[DataFile], purpose: str | None) -> Judgement:
    """Judges a model on measured blocks.

    Args:
      purpose: one of PURPOSES; None for all blocks.

    Raises:
      LearnedError: there are no such blocks, or they are of several CPUs or an unknown one.
    """
    if len(cpus_of(files)) > 1:
        raise LearnedError(
            f"files of several CPUs, {', '.join(cpus_of(files))}: give one at a time"
        )
    every = samples(files, model.config)
    chosen = np.arange(len(every.codes)) if purpose is None else every.of(purpose)
    if not len(chosen):
        programs = ", ".join(model.config.test_programs) or "none"
        raise LearnedError(
            f"no blocks for {purpose}: the model left out those of {programs}; --blocks=all takes "
            "all"
        )
    codes = [every.codes[block] for block in chosen]
    pmu = [every.pmu[block] for block in chosen]
    with Pool() as pool:
        predicted, problems = model.predict(codes, files[0].cpu, pmu, pool)
    measured, pages = every.cycles[chosen].astype(np.float64), every.pages[chosen]
    numbers: dict[bytes, int] = {}
    blocks = np.array([numbers.setdefault(canonical(code), len(numbers)) for code in codes])
    found, points = {}, {}
    for number, one in enumerate(files):
        inside = every.files[chosen] == number
        name = one.path.stem
        points[name] = predicted[inside], measured[inside]
        rated = any(known is not None for known, here in zip(pmu, inside, strict=True) if here)
        by_rate = rate_groups(name, pmu) if rated else {}
        # Pages that the harness has chosen do not count, so that there memory tells nothing.
        parts = {name: pages >= 0, **by_rate} if rated else groups(name, pages)
        for group, of in parts.items():
            both = inside & of
            found[group] = figures(predicted[both], measured[both], blocks[both])
    return Judgement(model.config.name, files[0].cpu, found, counted(problems), points)
