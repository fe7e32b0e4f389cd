# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Labels of the first uses of callee-saved registers: what each costs more than its alternative.

A module is compiled by a constant price with one such decision of each function taken the other
way: registers are allocated function by function, so that one compilation tells a label of each.
Evaluators tell what the functions cost in the recorded run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.cost.evaluator import REPLAY_FLAGS
from compiler_opt_perf.cost.regalloc_score import FLAGS as SCORE_FLAGS
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import write_text
from compiler_opt_perf.policies.interactive import InteractiveHost, Observation
from compiler_opt_perf.policies.problem import PROBLEMS, decision_lines, for_clang
from compiler_opt_perf.studies.eviction_builds import Judge
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.training.compilation import scratch
from compiler_opt_perf.training.log import TrainingLog, read_log

PROBLEM = PROBLEMS["regalloc-evict"]
#: Names of what a rule may decide by: the alternative's column of these features.
INPUTS = (
    *("alternative_is_spill", "alternative_cost", "spill_cost", "hottest_block", "coldest_block"),
    *("callee_saved_in_use", "progress"),
)
COUNT_INPUTS = ("pmu_alternative_executions", "pmu_entries", "pmu_reads")
RATE_INPUTS = (
    *("pmu_address_llc_miss_probability", "pmu_def_llc_miss_probability"),
    *("pmu_address_l1_miss_probability", "pmu_mispredict_rate"),
    *("pmu_memory_port_pressure", "pmu_frontend_pressure"),
)
PMU_INPUTS = (*COUNT_INPUTS, *RATE_INPUTS)
#: The decision that splits or spills.
ALTERNATIVE = PROBLEM.idle_decision

_FLAGS = ("-O2", "-x", "ir", "-Xclang", "-disable-llvm-passes", *REPLAY_FLAGS, *SCORE_FLAGS)
_TIMEOUT_S = 600.0
_LOG = "decisions.log"
# What is said of a module of data alone.
_NO_CODE = "no basic block address map"

#: Whether to take the alternative, by `INPUTS` and `PMU_INPUTS`.
Rule = Callable[[Mapping[str, float]], bool]


@dataclass(frozen=True)
class Asked:
    """A rule as the compiler asks it: first uses are its own; evictions, the compiler's."""

    rule: Rule

    def __call__(self, observation: Observation) -> int:
        features = observation.features
        default = int(np.argmax(features["default_decision"].reshape(-1)))
        if not features["first_use_of_callee_saved"].any():
            return default
        return ALTERNATIVE if self.rule(inputs_of(features)) else default


#: By evaluator, what each function costs.
Costs = dict[str, dict[str, float]]


@dataclass(frozen=True)
class ModuleJob:
    """One module.

    Attributes:
      bitcode: its optimised IR.
      judges: by name; `count` is among them.
      profile: PMU profile manifest that the compiler is given.
    """

    toolchain: Toolchain
    bitcode: Path
    judges: Mapping[str, Judge]
    profile: Path


@dataclass(frozen=True)
class LabelJob:
    """One module to label.

    Attributes:
      price: of the rule around whose decisions the labels are.
      least: functions that execute fewer instructions by that price are left out.
      most: decisions of a function to take the other way; if there are more, some at random.
      seed: of that draw.
    """

    module: ModuleJob
    price: int
    least: float = 1.0
    most: int = 8
    seed: int = 1


class Label(msgspec.Struct, frozen=True):
    """One decision.

    Attributes:
      key: of the decision (docs/features.md).
      excess: by evaluator, the cost if the register is used less that of the alternative.
      inputs: by name.
    """

    key: str
    excess: dict[str, float]
    inputs: dict[str, float]

    @property
    def function(self) -> str:
        return _function(self.key)


def label(job: LabelJob) -> list[Label]:
    """Labels one module. In a pool's worker.

    Raises:
      CommandError: the compiler failed by the price, or an evaluator did.
      LogError: the compiler left a damaged log.
    """
    with scratch() as folder:
        base = _costs(_flipped(job, folder, {}), job.module)
        log = read_log(folder / _LOG)
        taken = log.decisions(PROBLEM)
        rows = _draw(log, base["count"], job)
        labels: dict[int, Label] = {}
        for number in range(max(map(len, rows.values()), default=0)):
            flipped = {name: own[number] for name, own in rows.items() if number < len(own)}
            other = {
                row: _other(log.observations[row], int(taken[row])) for row in flipped.values()
            }
            given = {log.keys[row]: other[row] for row in other}
            costs = _costs(_flipped(job, folder, given), job.module)
            for name, row in flipped.items():
                sign = -1 if other[row] == ALTERNATIVE else 1
                excess = {
                    evaluator: sign * (own.get(name, 0.0) - base[evaluator].get(name, 0.0))
                    for evaluator, own in costs.items()
                }
                labels[row] = Label(log.keys[row], excess, inputs_of(log.observations[row]))
        return [labels[row] for row in sorted(labels)]


def inputs_by_key(job: LabelJob) -> dict[str, dict[str, float]]:
    """The inputs of all decisions that the price is asked for in a module. In a pool's worker.

    Raises:
      CommandError: the compiler failed.
      LogError: it left a damaged log.
    """
    with scratch() as folder:
        _flipped(job, folder, {})
        log = read_log(folder / _LOG)
        return {
            key: inputs_of(observation)
            for key, observation in zip(log.keys, log.observations, strict=True)
            if _is_question(key)
        }


def inputs_of(features: Mapping[str, npt.NDArray[Any]] | npt.NDArray[np.void]) -> dict[str, float]:
    """The inputs of a rule, of a logged decision or an observation."""
    return {name: float(features[name].reshape(-1)[-1]) for name in (*INPUTS, *PMU_INPUTS)}


def cost(job: ModuleJob, rule: Rule | None) -> Costs:
    """What the functions of a module cost. In a pool's worker.

    Args:
      rule: for first uses of callee-saved registers; None: the compiler's own, which has them all.

    Raises:
      CommandError: the compiler or an evaluator failed.
    """
    with scratch() as folder:
        target = folder / "module.o"
        argv: list[str | Path] = [job.toolchain.clang, *_FLAGS, "-c", job.bitcode, "-o", target]
        if rule is None:
            run_command(argv, timeout_s=_TIMEOUT_S)
        else:
            with InteractiveHost(PROBLEM, Asked(rule)) as host:
                options = PROBLEM.interactive_options(host.channel, profile=job.profile)
                host.run([*argv, *for_clang(options)], timeout_s=_TIMEOUT_S)
        return _costs(target, job)


def _is_question(key: str) -> bool:
    return " saved #" in key


def _function(key: str) -> str:
    return key.split(" ")[0]


def _other(observation: npt.NDArray[np.void], taken: int) -> int:
    if taken != ALTERNATIVE:
        return ALTERNATIVE
    return int(np.argmax(observation["first_use_of_callee_saved"].reshape(-1)))


def _draw(log: TrainingLog, costs: Mapping[str, float], job: LabelJob) -> dict[str, list[int]]:
    """Numbers of the decisions to take otherwise, by function; of functions that run."""
    rows: dict[str, list[int]] = {}
    for number, key in enumerate(log.keys):
        if _is_question(key) and costs.get(_function(key), 0.0) >= job.least:
            rows.setdefault(_function(key), []).append(number)
    draw = np.random.default_rng(job.seed)
    return {
        name: sorted(draw.permutation(own)[: job.most].tolist()) if len(own) > job.most else own
        for name, own in rows.items()
    }


def _flipped(job: LabelJob, folder: Path, given: Mapping[str, int]) -> Path:
    """The module's object file, with some decisions given; leaves the log beside it."""
    module, target, log = job.module, folder / "module.o", folder / _LOG
    options = [
        *PROBLEM.development_options(log=log, profile=module.profile),
        f"-regalloc-csr-first-time-cost={job.price}",
        "-mlgo-decision-keys",
    ]
    if given:
        path = folder / "decisions.txt"
        write_text(path, decision_lines(given))
        options.append(f"-mlgo-decisions={path}")
    argv: list[str | Path] = [module.toolchain.clang, *_FLAGS, "-c", module.bitcode, "-o", target]
    run_command([*argv, *for_clang(options)], timeout_s=_TIMEOUT_S)
    return target


def _costs(target: Path, job: ModuleJob) -> Costs:
    try:
        return {name: dict(judge.cost([target]).parts) for name, judge in job.judges.items()}
    except CommandError as error:
        if _NO_CODE not in str(error):
            raise
        return {name: {} for name in job.judges}
