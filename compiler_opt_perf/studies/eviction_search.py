# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A search over the eviction decisions of one function, by the instructions that a run executes.

Local search by single deviations, as Theodoridis, Grosser and Su do for inlining (Understanding and
Exploiting Optimal Function Inlining, ASPLOS 2022): each decision is taken otherwise alone, the
compiler's own rule takes those that follow; then what helped is combined, in the order of its gain.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from compiler_opt_perf.cost.evaluator import EVALUATORS, REPLAY_FLAGS, Context
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.execution.files import write_text
from compiler_opt_perf.policies.problem import PROBLEMS, decision_lines, for_clang
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.training.compilation import scratch
from compiler_opt_perf.training.log import TrainingLog, read_log

_PROBLEM = PROBLEMS["regalloc-evict"]
_FLAGS = ("-O2", "-x", "ir", "-Xclang", "-disable-llvm-passes", *REPLAY_FLAGS)
_TIMEOUT_S = 300.0
# Live ranges that may give way instead, at most: the lightest.
_LIGHTEST = 3


@dataclass(frozen=True)
class SearchJob:
    """One function to search.

    Attributes:
      bitcode: its optimised IR, of it alone.
      context: the recorded run.
      options: of the code generator.
      rounds: how often all decisions are deviated from.
      most: decisions that are tested in a round; if there are more, some at random.
      seed: of that draw.
    """

    toolchain: Toolchain
    function: str
    bitcode: Path
    context: Context
    options: tuple[str, ...] = ()
    rounds: int = 2
    most: int = 200
    seed: int = 1


class Found(msgspec.Struct, frozen=True):
    """What a search found.

    Attributes:
      default, best: instructions that the run executes in the function.
      decisions: by key, those that lead to `best`; the compiler's rule takes the others.
      asked: how many decisions the compiler's rule takes.
      compilations: how many there were.
    """

    function: str
    default: float
    best: float
    decisions: dict[str, int]
    asked: int
    compilations: int


def search(job: SearchJob) -> Found:
    """Searches one function. In a pool's worker.

    Raises:
      CommandError: the compiler fails by its own decisions, or the evaluator does.
      LogError: the compiler left a damaged log.
    """
    with scratch() as folder:
        allocations = _Allocations(job, folder)
        given: dict[str, int] = {}
        log = allocations.log(given)
        asked, default = len(log.keys), allocations.cost(given)
        best = default
        draw = np.random.default_rng(job.seed)
        for _ in range(job.rounds):
            gains: list[tuple[float, str, int]] = []
            for key, column in _deviations(log, job.most, draw):
                cost = allocations.cost({**given, key: column})
                if cost < best:
                    heapq.heappush(gains, (cost, key, column))
            if not gains:
                break
            taken = set()
            while gains:
                _, key, column = heapq.heappop(gains)
                if key not in taken:
                    cost = allocations.cost({**given, key: column})
                    if cost < best:
                        given[key], best = column, cost
                        taken.add(key)
            log = allocations.log(given)
        return Found(job.function, default, best, given, asked, allocations.compilations)


def decision_options(decisions: Mapping[str, int], path: Path) -> list[str]:
    """Options of the code generator that take decisions by key; writes `path` for them."""
    write_text(path, decision_lines(decisions))
    log = path.with_suffix(".log")
    return [*_PROBLEM.development_options(log=log), f"-mlgo-decisions={path}"]


class _Allocations:
    """Compiles the function by given decisions; `compilations` counts how often."""

    def __init__(self, job: SearchJob, folder: Path):
        self.compilations = 0
        self._job = job
        self._folder = folder
        self._costs: dict[tuple[tuple[str, int], ...], float] = {}

    def log(self, given: Mapping[str, int]) -> TrainingLog:
        """What is decided. Raises as `search`."""
        self._compile(given)
        return read_log(self._folder / "decisions.log")

    def cost(self, given: Mapping[str, int]) -> float:
        """Executed instructions; infinitely many where decisions leave no registers."""
        key = tuple(sorted(given.items()))
        if key not in self._costs:
            try:
                compiled = self._compile(given)
            except CommandError:
                if not given:
                    raise
                self._costs[key] = np.inf
            else:
                self._costs[key] = EVALUATORS["count"].cost([compiled], self._job.context).total
        return self._costs[key]

    def _compile(self, given: Mapping[str, int]) -> Path:
        self.compilations += 1
        target = self._folder / "function.o"
        options = [
            *self._job.options,
            *decision_options(given, self._folder / "decisions.txt"),
            "-mlgo-decision-keys",
        ]
        argv: list[str | Path] = [self._job.toolchain.clang, *_FLAGS, "-c", self._job.bitcode]
        run_command([*argv, "-o", target, *for_clang(options)], timeout_s=_TIMEOUT_S)
        return target


def _deviations(
    log: TrainingLog, most: int, draw: np.random.Generator
) -> Iterator[tuple[str, int]]:
    """Keys of decisions, each with what else could be decided: the lightest ranges, and none."""
    rows = np.arange(len(log.keys))
    if len(rows) > most:
        rows = np.sort(draw.choice(rows, most, replace=False))
    taken = log.decisions(_PROBLEM)
    for row in rows.tolist():
        one = log.observations[row]
        allowed = one["mask"].reshape(-1) > 0
        # NaN is infinity divided by infinity, of live ranges that cannot be spilled.
        weight = np.nan_to_num(one["use_def_density"].reshape(-1), nan=np.inf)
        none = len(allowed) - 1
        columns = [column for column in np.flatnonzero(allowed).tolist() if column != taken[row]]
        lightest = sorted((c for c in columns if c != none), key=lambda c: (weight[c], c))
        for column in [*lightest[:_LIGHTEST], *([none] if none in columns else [])]:
            yield log.keys[row], column
