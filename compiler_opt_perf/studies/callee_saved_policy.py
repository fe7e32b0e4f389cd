# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Can the price of callee-saved registers be learnt from labels, and does a PMU profile help?

Labels of single decisions around constant prices (`callee_saved_labels`) train a logistic
regression that tells whether deciding otherwise than the constant pays; a label weighs what the
wrong way costs (Zadrozny, Langford and Abe 2003). Each program is compiled by what the others
taught, and compared with constants and with the shipped rule of two numbers, which has nothing
learnt (`policies.callee_saved_rule`): by several rewards, and with all, some and none of the
profile's features, or those of a profile whose counts were exchanged between lines. On other
inputs, the clock judges what each reward taught.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from compiler_opt_perf.execution.executor import Executor
from compiler_opt_perf.execution.files import sha256, write_json
from compiler_opt_perf.execution.memo import memo, note, numbered, recall
from compiler_opt_perf.execution.pool import Pool
from compiler_opt_perf.policies.callee_saved_rule import CalleeSavedRule
from compiler_opt_perf.policies.export import Policy, publish
from compiler_opt_perf.studies.callee_saved_labels import (
    PMU_INPUTS,
    RATE_INPUTS,
    Asked,
    Costs,
    Label,
    LabelJob,
    ModuleJob,
    Rule,
    cost,
    inputs_by_key,
    label,
)
from compiler_opt_perf.studies.common import Timing, percent, saved, shuffled_profile
from compiler_opt_perf.studies.eviction_builds import COUNT, DEFAULT, REWARDS, Level
from compiler_opt_perf.studies.variants import Variant
from compiler_opt_perf.studies.workloads import COUNTED, HELD_OUT, ONLY_ONCE
from compiler_opt_perf.toolchain.installation import Toolchain

PROGRAMS = tuple(COUNTED)
#: The constant that is best for other programs (`callee_saved`), and prices to label around.
CONSTANT = 262144
PRICES = (65536, CONSTANT)
#: Name of the shipped rule in tables.
RULE = "rule"
# Functions with less of a program's instructions have no labels: nothing is to gain there.
_LEAST = 3e-4
# Labels count by the square root of their share of the program, so that no function is all of it.
_LARGEST, _POWER, _RIDGE = 0.01, 0.5, 0.05
_SECONDS = 7200.0

T = TypeVar("T")


@dataclass(frozen=True)
class Arm:
    """What a policy sees of the profile.

    Attributes:
      counts, rates: the features of executions; of misses, mispredictions and pressure.
      shuffled: of a profile whose counts were exchanged between lines.
    """

    counts: bool = False
    rates: bool = False
    shuffled: bool = False


ARMS = {
    "none": Arm(),
    "counts only": Arm(counts=True),
    "rates only": Arm(rates=True),
    "all": Arm(counts=True, rates=True),
    "shuffled": Arm(counts=True, rates=True, shuffled=True),
}


def _log2_of(price: int) -> float:
    return float(np.log2(price / 2**14))


@dataclass(frozen=True)
class Constant:
    """Takes the alternative if it costs less than a price."""

    price: int = CONSTANT

    def __call__(self, inputs: Mapping[str, float]) -> bool:
        return inputs["alternative_cost"] < _log2_of(self.price)


@dataclass(frozen=True)
class Learned:
    """A logistic regression that deviates from a constant where it is sure.

    Attributes:
      arm: what it reads of the profile.
      center, scale, weights: of the inputs; the last weight is the bias.
      margin: how far its probability has to be beyond a half.
    """

    arm: Arm
    center: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    margin: float = 0.2

    def __call__(self, inputs: Mapping[str, float]) -> bool:
        row = (_row(inputs, self.arm) - np.array(self.center)) / np.array(self.scale)
        # The logistic function, without overflow.
        probability = 0.5 + 0.5 * np.tanh((row @ self.weights[:-1] + self.weights[-1]) / 2)
        sign = -1 if Constant()(inputs) else 1
        return bool(probability > 0.5 + sign * self.margin)


def _measured(inputs: Mapping[str, float]) -> float:
    """log2 of what the run executed of the alternative per entry; the estimate if it's unknown."""
    known = inputs["pmu_alternative_executions"]
    return known - 10.0 if known >= 0 else inputs["alternative_cost"]


def _row(inputs: Mapping[str, float], arm: Arm) -> npt.NDArray[np.float64]:
    row = [min(max(inputs["alternative_cost"], -4.0), 9.0)]
    row += [inputs[name] for name in ("callee_saved_in_use", "spill_cost", "hottest_block")]
    row += [inputs[name] for name in ("coldest_block", "progress", "alternative_is_spill")]
    if arm.counts:
        entries, reads = inputs["pmu_entries"], inputs["pmu_reads"]
        row += [min(max(_measured(inputs), -4.0), 9.0)]
        row += [float(inputs["pmu_alternative_executions"] >= 0), entries]
        row += [reads - entries if min(reads, entries) >= 0 else inputs["spill_cost"]]
    if arm.rates:
        # What is not known, -1, counts as never.
        row += [max(inputs[name], 0.0) for name in RATE_INPUTS]
    return np.array(row)


@dataclass(frozen=True)
class Taught:
    """A label of another program.

    Attributes:
      program: its name.
      total: what the program costs, by the reward.
    """

    program: str
    label: Label
    total: float


def fit(labels: Sequence[Taught], reward: str, arm: Arm) -> Learned:
    """Fits the regression.

    Args:
      reward: the evaluator whose excess is to be small.
    """
    # Workers import this module, too.
    from scipy.optimize import minimize

    rows = np.stack([_row(one.label.inputs, arm) for one in labels])
    excess = np.array([one.label.excess[reward] / one.total for one in labels])
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
    return Learned(arm, center=numbers[0], scale=numbers[1], weights=numbers[2])


def resampled(labels: Sequence[Taught], seed: int) -> list[Taught]:
    """Labels of as many functions, drawn with replacement: other programs as much as by chance."""
    functions: dict[tuple[str, str], list[Taught]] = {}
    for one in labels:
        functions.setdefault((one.program, one.label.function), []).append(one)
    groups = [functions[key] for key in sorted(functions)]
    draw = np.random.default_rng(seed).integers(len(groups), size=len(groups))
    return [one for group in draw.tolist() for one in groups[group]]


@dataclass
class _Program:
    """What the study has of one program.

    Attributes:
      build: its builds.
      common: what all results depend on.
      totals: by evaluator, what it costs by the compiler's own rule.
      modules: those with a function that executes enough.
      default: by evaluator, what these cost by the compiler's own rule.
      jobs: for labels.
    """

    name: str
    build: Level
    notes: Path
    common: dict[str, Any]
    pool: Executor
    totals: dict[str, float] = field(default_factory=dict)
    modules: list[ModuleJob] = field(default_factory=list)
    default: dict[str, float] = field(default_factory=dict)
    jobs: list[LabelJob] = field(default_factory=list)

    @cached_property
    def labels(self) -> list[list[Label]]:
        """Of each job."""
        found = self.each(label, self.jobs, list[Label])
        number = sum(map(len, found))
        logging.info("%s: %d labels in %d modules", self.name, number, len(self.modules))
        return found

    def change(self, rule: Rule, seed: int | None) -> dict[str, float]:
        """By evaluator, what the program costs more by a rule than by the compiler's own.

        Args:
          seed: of the exchange of the profile's counts; None for the profile as it is.
        """
        modules = self.modules
        if seed is not None:
            profile = self.shuffled(seed)
            modules = [dataclasses.replace(module, profile=profile) for module in modules]
        sums = _sums(self.costs(modules, rule))
        return {one: (sums[one] - self.default[one]) / self.totals[one] for one in sums}

    def taught(self, reward: str, seed: int | None) -> list[Taught]:
        """Its labels for other programs; with a seed, as a profile with exchanged counts has them.

        Args:
          reward: an evaluator.
        """
        labels = self.labels
        if seed is not None:
            profile = self.shuffled(seed)
            jobs = [
                dataclasses.replace(job, module=dataclasses.replace(job.module, profile=profile))
                for job in self.jobs
            ]
            found = self.each(inputs_by_key, jobs, dict[str, dict[str, float]])
            labels = [
                [msgspec.structs.replace(one, inputs=inputs[one.key]) for one in own]
                for own, inputs in zip(labels, found, strict=True)
            ]
        return [Taught(self.name, one, self.totals[reward]) for own in labels for one in own]

    def timed(self, rules: Mapping[str, tuple[Rule, int | None]], plan: Timing) -> dict[str, Any]:
        """What rules change of the time of the input by which nothing was chosen.

        Args:
          rules: by name, each with the seed of the exchange of the profile's counts, or None.

        Returns:
          As `Rounds.against_first`; rules that make one code have one time.
        """
        # Workers import this module, too.
        from compiler_opt_perf.studies.rounds import run_rounds

        folder = self.notes / "held-out"
        folder.mkdir(exist_ok=True)
        workload = HELD_OUT[self.name](folder)
        binaries = {DEFAULT.name: self.build.layouts(DEFAULT, number=plan.layouts)}
        for name, (rule, seed) in rules.items():
            profile = self.build.profile() if seed is None else self.shuffled(seed)
            binaries[name] = self.build.layouts(
                Variant(name), profile=profile, number=plan.layouts, decide=Asked(rule)
            )
        first: dict[str, str] = {}
        alike = {name: first.setdefault(sha256(own[0]), name) for name, own in binaries.items()}
        measured = run_rounds(
            self.notes / "rounds.json",
            {name: own for name, own in binaries.items() if alike[name] == name},
            workload.arguments,
            workload.run_inputs(),
            plan.rounds,
            plan.processor,
            label=self.name,
        )
        found = measured.against_first()
        same = [0.0, 0.0, 0.0]
        changes = {name: found["changes"].get(alike[name], same) for name in rules}
        return {**found, "changes": changes}

    def shuffled(self, seed: int) -> Path:
        """The profile with counts exchanged between lines."""
        output = self.notes / f"shuffled-{seed}.pmu.json"
        return shuffled_profile(self.modules[0].profile, output, seed)

    def costs(self, modules: Sequence[ModuleJob], rule: Rule | None) -> list[Costs]:
        """What each module costs by a rule; by the compiler's own if it is None."""
        inputs: dict[str, Any] = self.common | {
            "rule": repr(rule),
            "bitcode": [sha256(module.bitcode) for module in modules],
            "profile": sha256(modules[0].profile) if modules else None,
        }

        def compiled() -> list[Costs]:
            jobs = [(module, rule) for module in modules]
            text = f"{self.name}: {type(rule).__name__}"
            outcomes = self.pool.map(_cost, jobs, timeout_s=_SECONDS, label=text)
            return [one.get() for one in outcomes]

        return memo(numbered(self.notes, inputs), inputs, list[Costs], compiled)

    def each(
        self, function: Callable[[LabelJob], T], jobs: Sequence[LabelJob], kind: type[T]
    ) -> list[T]:
        """What a function makes of each job, in a pool; what is there is not made again."""

        def inputs(job: LabelJob) -> dict[str, Any]:
            bitcode = sha256(job.module.bitcode)
            profile = sha256(job.module.profile)
            drawn = {"price": job.price, "least": job.least, "most": job.most, "seed": job.seed}
            made = {"made": function.__name__, "inputs": PMU_INPUTS}
            return self.common | {"bitcode": bitcode, "profile": profile} | drawn | made

        def keep(job: LabelJob, found: T) -> None:
            note(numbered(self.notes, inputs(job)), inputs(job), kind, found)

        known = [recall(numbered(self.notes, inputs(job)), inputs(job), kind) for job in jobs]
        missing = [job for job, one in zip(jobs, known, strict=True) if one is None]
        text = f"{self.name}: {function.__name__}"
        outcomes = self.pool.map(function, missing, timeout_s=_SECONDS, label=text, keep=keep)
        new = iter(outcomes)
        return [next(new).get() if one is None else one for one in known]


def study(
    programs: Sequence[str],
    output: Path,
    toolchain: Toolchain,
    *,
    rewards: Sequence[str] = (COUNT,),
    arms: Sequence[str] = tuple(ARMS),
    seeds: int = 3,
    cpu: Path | None = None,
    model: Path | None = None,
    timing: Timing | None = None,
) -> dict[str, Any]:
    """Compiles some of the `PROGRAMS` at -O2 by rules, and by what labels of the others taught.

    Args:
      output: folder for builds and results; that of the study `callee_saved` has builds already.
      rewards: some of `eviction_builds.REWARDS`, `count` among them; all judge each policy.
      arms: some of the `ARMS`.
      seeds: of each arm so many policies; the first learns from the labels as they are, others from
        labels that are drawn again. Profiles are shuffled by the seed.
      cpu: CPU file, for rewards in cycles.
      model: folder of a learned cost model, for `eviction_builds.LEARNED`.
      timing: of the inputs by which nothing was chosen, by constants, the rule and each arm's first
        policy; None: nothing is timed.

    Returns:
      All results in the folder, by program, for `tables`.

    Raises:
      CommandError: a compiler or a run failed.
      CostError: a reward needs a CPU file.
      LearnedError: the model is damaged, or does not know the CPU.
      LogError: the compiler left a damaged log.
      StudyError: there is no model, or a damaged result in the folder.
    """
    output = output.resolve()
    with Pool() as pool:
        found = [_program(name, output, toolchain, pool, rewards, cpu, model) for name in programs]
        for own in found:
            others = [each for each in found if each is not own]
            rules = _rules(own, others, rewards, arms, seeds)
            changes = {
                name: [own.change(rule, exchanged) for rule, exchanged in each]
                for name, each in rules.items()
            }
            labels = [one for each in own.labels for one in each] if others else []
            result = {
                "costs": own.totals,
                "labels": len(labels),
                "paying": {
                    reward: sum(one.excess[reward] > 0 for one in labels) for reward in rewards
                },
                "changes": {
                    judge: {name: [one[judge] for one in each] for name, each in changes.items()}
                    for judge in rewards
                },
            }
            if timing and own.name not in ONLY_ONCE:
                first = {name: each[0] for name, each in rules.items()}
                result["timed"] = own.timed(first, timing)
            write_json(output / f"{own.name} policy.json", result)
    return saved(output, PROGRAMS, " policy.json")


def _rules(
    own: _Program,
    others: Sequence[_Program],
    rewards: Sequence[str],
    arms: Sequence[str],
    seeds: int,
) -> dict[str, list[tuple[Rule, int | None]]]:
    """By name, a rule a seed; each with the seed of the exchange of the profile's counts."""
    every = range(1, seeds + 1)
    rules: dict[str, list[tuple[Rule, int | None]]] = {
        f"constant {price}": [(Constant(price), None)] for price in PRICES
    }
    rules[RULE] = [(CalleeSavedRule(), None)]
    rules[f"{RULE}, shuffled"] = [(CalleeSavedRule(), seed) for seed in every]
    for reward in rewards if others else ():
        for name in arms:
            rules[f"{reward}, {name}"] = [
                _learned(others, reward, ARMS[name], seed) for seed in every
            ]
    return rules


def _learned(
    others: Sequence[_Program], reward: str, arm: Arm, seed: int
) -> tuple[Learned, int | None]:
    """What other programs teach, and the seed of the exchange of the profile's counts."""
    exchanged = seed if arm.shuffled else None
    labels = [one for each in others for one in each.taught(reward, exchanged)]
    if seed > 1:
        labels = resampled(labels, seed)
    return fit(labels, reward, arm), exchanged


def _program(
    name: str,
    output: Path,
    toolchain: Toolchain,
    pool: Executor,
    rewards: Sequence[str],
    cpu: Path | None,
    model: Path | None,
) -> _Program:
    build = Level(name, "O2", output / name / "O2", toolchain, pool, cpu, model)
    notes = build.folder / "callee-saved"
    notes.mkdir(exist_ok=True)
    judges = {reward: build.judge(reward) for reward in rewards}
    common = {
        "clang": sha256(toolchain.clang.resolve()),
        "judges": {reward: judge.inputs() for reward, judge in judges.items()},
    }
    own = _Program(name, build, notes, common, pool)
    # Most policies make the same code of a module; no two labels do.
    kept = {reward: judge.kept_in(notes / "costs") for reward, judge in judges.items()}
    modules = [ModuleJob(toolchain, bitcode, kept, build.profile()) for bitcode in build.bitcode()]
    costs = own.costs(modules, None)
    own.totals = _sums(costs)
    least = _LEAST * own.totals[COUNT]
    hot = [max(one[COUNT].values(), default=0.0) >= least for one in costs]
    own.modules = [module for module, one in zip(modules, hot, strict=True) if one]
    own.default = _sums([each for each, one in zip(costs, hot, strict=True) if one])
    own.jobs = [
        LabelJob(dataclasses.replace(module, judges=judges), price, least)
        for module in own.modules
        for price in PRICES
    ]
    return own


def _sums(costs: Sequence[Costs]) -> dict[str, float]:
    """By evaluator, what modules cost together."""
    return {one: sum(sum(each[one].values()) for each in costs) for one in costs[0]}


def _cost(job: tuple[ModuleJob, Rule | None]) -> Costs:
    return cost(*job)


def publish_rule(directory: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Publishes the rule as a policy, with its changes of `count` on all programs.

    Raises:
      FileWriteError: the folder cannot be written.
    """
    rule = CalleeSavedRule()
    network, weights = rule.network()
    changes = {
        name: {
            key: own[0]
            for key, own in row["changes"][COUNT].items()
            if key == RULE or key.startswith("constant ")
        }
        for name, row in results.items()
    }
    description = {
        "purpose": "fewer executed instructions at -O2, by the PMU profile of a run: first uses of "
        "callee-saved registers; evictions are the compiler's own",
        "rule": rule.as_json(),
        "results": {"programs": changes},
    }
    publish(Policy(network, weights, description), directory)


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Changes of costs against the compiler's own rule, in Markdown, a table an evaluator."""
    judges = list(dict.fromkeys(name for row in results.values() for name in row["changes"]))
    found = [_table(results, judge) for judge in judges]
    timed = {name: row["timed"] for name, row in results.items() if "timed" in row}
    if timed:
        found.append(_timed_table(timed))
    return "\n".join("\n".join(lines) + "\n" for lines in found)


def _table(results: Mapping[str, Mapping[str, Any]], judge: str) -> list[str]:
    """A row for each rule, of the means over its seeds; their range is that of geometric means."""
    programs = {name: row for name, row in results.items() if judge in row["changes"]}
    head = [f"{REWARDS[judge]} ({judge})", *programs, "geometric mean", "seeds"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    cells = [f"{row['costs'][judge]:,.0f}" for row in programs.values()]
    lines.append(f"| default | {' | '.join(cells)} | | |")
    cells = [f"{row['paying'][judge]} of {row['labels']}" for row in programs.values()]
    lines.append(f"| labels that pay | {' | '.join(cells)} | | |")
    changes = {name: row["changes"][judge] for name, row in programs.items()}
    for rule in dict.fromkeys(rule for own in changes.values() for rule in own):
        known = [np.log1p(own[rule]) for own in changes.values() if rule in own]
        cells = [
            _change(np.mean(np.log1p(own[rule]))) if rule in own else "–"
            for own in changes.values()
        ]
        if len(known) == len(programs) and len(set(map(len, known))) == 1:
            means = np.mean(known, axis=0)
            spread = f"{_change(means.min())} to {_change(means.max())}" if len(means) > 1 else ""
            cells += [_change(means.mean()), spread]
        else:
            cells += ["–", ""]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return lines


def _timed_table(timed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A row for each rule, with 95% intervals over layouts, and of the mean over programs."""
    from compiler_opt_perf.studies.rounds import HEAD, described, mean_change

    head = ["time of other inputs", *timed, "geometric mean"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    rows = [described(row) for row in timed.values()]
    for number, name in enumerate(HEAD):
        lines.append(f"| {name} | {' | '.join(row[number] for row in rows)} | |")
    for rule in dict.fromkeys(rule for row in timed.values() for rule in row["changes"]):
        known = [row["changes"].get(rule) for row in timed.values()]
        cells = [percent(one) if one else "–" for one in known]
        logs = np.log1p([one[0] for one in known if one])
        mean = mean_change(logs) if len(logs) == len(timed) else "–"
        lines.append(f"| {rule} | {' | '.join(cells)} | {mean} |")
    return lines


def _change(log: float) -> str:
    return f"{100 * np.expm1(log):+.2f}%"
