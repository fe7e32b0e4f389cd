# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Can the price of callee-saved registers be learnt from labels, and does a PMU profile help?

Labels of single decisions around constant prices (`callee_saved_labels`) train a logistic
regression that tells whether deciding otherwise than the constant pays; a label weighs what the
wrong way costs (Zadrozny, Langford and Abe 2003). Each program is compiled by what the others
taught, with and without the profile's features on the same labels, and compared by `count` with the
constant and with a rule of two thresholds that has nothing learnt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.execution.executor import Executor
from compiler_opt_perf.execution.files import sha256, write_json
from compiler_opt_perf.execution.memo import memo, note, numbered, recall
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.studies.callee_saved_labels import (
    Label,
    LabelJob,
    ModuleJob,
    Rule,
    executed,
    label,
)
from compiler_opt_perf.studies.common import saved
from compiler_opt_perf.studies.eviction_builds import Level
from compiler_opt_perf.studies.workloads import COUNTED
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(COUNTED)
#: The constant that is best for other programs (`callee_saved`), and prices to label around.
CONSTANT = 262144
PRICES = (65536, CONSTANT)
# Functions with less of a program's instructions have no labels: nothing is to gain there.
_LEAST = 3e-4
# Labels count by the square root of their share of the program, so that no function is all of it.
_LARGEST, _POWER, _RIDGE = 0.01, 0.5, 0.05
_SECONDS = 7200.0


def _log2_of(price: int) -> float:
    return float(np.log2(price / 2**14))


@dataclass(frozen=True)
class Constant:
    """Takes the alternative if it costs less than a price."""

    price: int = CONSTANT

    def __call__(self, inputs: Mapping[str, float]) -> bool:
        return inputs["alternative_cost"] < _log2_of(self.price)


@dataclass(frozen=True)
class Measured:
    """Takes the alternative if it costs less than a price by the profile, too."""

    price: int = CONSTANT
    measured: float = 8.0

    def __call__(self, inputs: Mapping[str, float]) -> bool:
        return Constant(self.price)(inputs) and _measured(inputs) < np.log2(self.measured)


@dataclass(frozen=True)
class Learned:
    """A logistic regression that deviates from a constant where it is sure.

    Attributes:
      with_pmu: whether it reads the profile's features.
      center, scale, weights: of the inputs; the last weight is the bias.
      margin: how far its probability has to be beyond a half.
    """

    with_pmu: bool
    center: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    margin: float = 0.2

    def __call__(self, inputs: Mapping[str, float]) -> bool:
        row = (_row(inputs, self.with_pmu) - np.array(self.center)) / np.array(self.scale)
        probability = 1 / (1 + np.exp(-(row @ self.weights[:-1] + self.weights[-1])))
        sign = -1 if Constant()(inputs) else 1
        return bool(probability > 0.5 + sign * self.margin)


def _measured(inputs: Mapping[str, float]) -> float:
    """log2 of what the run executed of the alternative per entry; the estimate if it's unknown."""
    known = inputs["pmu_alternative_executions"]
    return known - 10.0 if known >= 0 else inputs["alternative_cost"]


def _row(inputs: Mapping[str, float], with_pmu: bool) -> npt.NDArray[np.float64]:
    row = [min(max(inputs["alternative_cost"], -4.0), 9.0)]
    row += [inputs[name] for name in ("callee_saved_in_use", "spill_cost", "hottest_block")]
    row += [inputs[name] for name in ("coldest_block", "progress", "alternative_is_spill")]
    if with_pmu:
        entries, reads = inputs["pmu_entries"], inputs["pmu_reads"]
        row += [min(max(_measured(inputs), -4.0), 9.0)]
        row += [float(inputs["pmu_alternative_executions"] >= 0), entries]
        row += [reads - entries if min(reads, entries) >= 0 else inputs["spill_cost"]]
    return np.array(row)


def fit(labels: Sequence[tuple[Label, float]], *, with_pmu: bool) -> Learned:
    """Fits the regression.

    Args:
      labels: each with the instructions of its program.
    """
    # Workers import this module, too.
    from scipy.optimize import minimize

    rows = np.stack([_row(one.inputs, with_pmu) for one, _ in labels])
    excess = np.array([one.excess / total for one, total in labels])
    weight = np.minimum(np.abs(excess), _LARGEST) ** _POWER
    weight /= weight.mean()
    center, scale = rows.mean(0), rows.std(0) + 1e-9
    scaled = (rows - center) / scale
    side = np.where(excess > 0, 1.0, -1.0)

    def loss(vector: npt.NDArray[np.float64]) -> float:
        logit = side * (scaled @ vector[:-1] + vector[-1])
        return float((weight * np.logaddexp(0, -logit)).mean() + _RIDGE * (vector[:-1] ** 2).sum())

    weights = minimize(loss, np.zeros(rows.shape[1] + 1)).x
    numbers = [tuple(map(float, one)) for one in (center, scale, weights)]
    return Learned(with_pmu, center=numbers[0], scale=numbers[1], weights=numbers[2])


@dataclass
class _Program:
    """What the study has of one program.

    Attributes:
      total: instructions by the compiler's own rule.
      modules: those with a function that executes enough.
      default: instructions of these by the compiler's own rule.
    """

    name: str
    notes: Path
    common: dict[str, Any]
    total: float = 0.0
    modules: list[ModuleJob] = field(default_factory=list)
    default: float = 0.0
    labels: list[Label] = field(default_factory=list)


def study(
    programs: Sequence[str], output: Path, toolchain: Toolchain, *, seed: int = 1
) -> dict[str, Any]:
    """Labels some of the `PROGRAMS` at -O2, and compiles each by what the others taught.

    Args:
      output: folder for builds and results; that of the study `callee_saved` has builds already.
      seed: of the draw of decisions where a function has many.

    Returns:
      All results in the folder, by program, for `table`.

    Raises:
      CommandError: a compiler or a run failed.
      LogError: the compiler left a damaged log.
      StudyError: a damaged result in the folder.
    """
    output = output.resolve()
    with Pool() as pool:
        found = [_labelled(name, output, toolchain, pool, seed) for name in programs]
        for own in found:
            others = [(one, each.total) for each in found if each is not own for one in each.labels]
            rules: dict[str, Rule] = {"constant": Constant(), "measured": Measured()}
            if others:
                rules["learned"] = fit(others, with_pmu=False)
                rules["learned with PMU"] = fit(others, with_pmu=True)
            changes = {
                name: (_executed(own, rule, pool) - own.default) / own.total
                for name, rule in rules.items()
            }
            paying = sum(one.excess > 0 for one in own.labels)
            result = {"instructions": own.total, "labels": len(own.labels), "paying": paying}
            write_json(output / f"{own.name} policy.json", result | {"changes": changes})
    return saved(output, PROGRAMS, " policy.json")


def _labelled(name: str, output: Path, toolchain: Toolchain, pool: Executor, seed: int) -> _Program:
    build = Level(name, "O2", output / name / "O2", toolchain, pool)
    notes = build.folder / "callee-saved"
    notes.mkdir(exist_ok=True)
    common = {"clang": sha256(toolchain.clang.resolve()), "trace": sha256(build.trace())}
    own = _Program(name, notes, common)
    modules = [
        ModuleJob(toolchain, bitcode, build.context(), build.profile())
        for bitcode in build.bitcode()
    ]
    costs = _by_module(own, modules, None, pool)
    own.total = sum(sum(one.values()) for one in costs)
    for module, cost in zip(modules, costs, strict=True):
        if max(cost.values(), default=0.0) >= _LEAST * own.total:
            own.modules.append(module)
            own.default += sum(cost.values())
    jobs = [
        LabelJob(module, price, _LEAST * own.total, seed=seed)
        for module in own.modules
        for price in PRICES
    ]

    def inputs(job: LabelJob) -> dict[str, Any]:
        bitcode = sha256(job.module.bitcode)
        profile = sha256(job.module.profile)
        drawn = {"price": job.price, "least": job.least, "most": job.most, "seed": job.seed}
        return common | {"bitcode": bitcode, "profile": profile} | drawn

    def keep(job: LabelJob, labels: list[Label]) -> None:
        note(numbered(notes, inputs(job)), inputs(job), list[Label], labels)

    known = [recall(numbered(notes, inputs(job)), inputs(job), list[Label]) for job in jobs]
    missing = [job for job, one in zip(jobs, known, strict=True) if one is None]
    outcomes = pool.map(label, missing, timeout_s=_SECONDS, label=f"{name}: labels", keep=keep)
    new = iter(outcomes)
    for one in known:
        own.labels += next(new).get() if one is None else one
    logging.info("%s: %d labels in %d modules", name, len(own.labels), len(own.modules))
    return own


def _executed(own: _Program, rule: Rule, pool: Executor) -> float:
    return sum(sum(one.values()) for one in _by_module(own, own.modules, rule, pool))


def _by_module(
    own: _Program, modules: Sequence[ModuleJob], rule: Rule | None, pool: Executor
) -> list[dict[str, float]]:
    """What the functions of each module execute by a rule."""
    inputs: dict[str, Any] = own.common | {
        "rule": repr(rule),
        "bitcode": [sha256(module.bitcode) for module in modules],
        "profile": sha256(modules[0].profile) if modules else None,
    }

    def compiled() -> list[dict[str, float]]:
        jobs = [(module, rule) for module in modules]
        label = f"{own.name}: {type(rule).__name__}"
        return [one.get() for one in pool.map(_compiled, jobs, timeout_s=_SECONDS, label=label)]

    return memo(numbered(own.notes, inputs), inputs, list[dict[str, float]], compiled)


def _compiled(job: tuple[ModuleJob, Rule | None]) -> dict[str, float]:
    return executed(*job)


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Changes of instructions against the compiler's own rule, in Markdown."""
    names = list(dict.fromkeys(name for row in results.values() for name in row["changes"]))
    head = ["program", "instructions", "labels", "of which pay", *names]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for program, row in results.items():
        cells = [program, f"{row['instructions']:,.0f}", str(row["labels"]), str(row["paying"])]
        cells += [
            _change(row["changes"][name]) if name in row["changes"] else "–" for name in names
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if len(results) > 1:
        means = [
            _change(np.expm1(np.mean(np.log1p([row["changes"][name] for row in results.values()]))))
            if all(name in row["changes"] for row in results.values())
            else "–"
            for name in names
        ]
        lines.append(f"| geometric mean | | | | {' | '.join(means)} |")
    return "\n".join(lines) + "\n"


def _change(change: float) -> str:
    return f"{100 * change:+.2f}%"
