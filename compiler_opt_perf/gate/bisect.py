# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fewest decisions that make a module worse.

Delta debugging (ddmin: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
IEEE TSE 28(2), 2002) over the decisions that the baseline and the candidate take differently: some
are taken as the candidate does, all others as in the baseline (-mlgo-decisions).
"""

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.execution.command import CommandError, run_command
from compiler_opt_perf.gate.baseline import Detail, ModuleRun, detail_of, pack
from compiler_opt_perf.gate.errors import GateError
from compiler_opt_perf.gate.limits import MetricLimits
from compiler_opt_perf.gate.measure import REPLAYED, Candidate, detail_after, fingerprint, totals
from compiler_opt_perf.gate.metrics import METRICS, Metric

#: What a decision of a policy can make worse, and is the same each time.
BISECTED = ("text", "score", "instructions", "cycles")


@dataclass(frozen=True)
class Bisection:
    """Why a module is worse.

    Attributes:
      module: its name.
      metric: that is worse.
      unit: of its values.
      before, after: with the baseline, and with the candidate.
      allowed: how much worse it may be.
      differing: decisions that the two take differently.
      baseline: decisions by key, as the baseline takes them, and the candidate those that the
        baseline does not know.
      causes: the fewest of the candidate's that are worse than allowed, with all others as in the
        baseline; none where the baseline's decisions are worse, too: then it is no decision.
      value: with these.
      minimal: whether no one of them can be left out.
      compilations: that it took.
    """

    module: str
    metric: str
    unit: str
    before: float
    after: float
    allowed: float
    differing: int
    baseline: Mapping[str, int]
    causes: Mapping[str, int]
    value: float
    minimal: bool
    compilations: int


class _ExhaustedError(Exception):
    """No further compilation is allowed."""


class _Compilations:
    """Compiles the module with given decisions.

    Attributes:
      done: how many there were.
    """

    def __init__(self, module: Module, candidate: Candidate, before: ModuleRun, metric: Metric):
        self.done = 0
        self._module, self._candidate = module, candidate
        self._before, self._metric = before, metric
        self._digest = fingerprint(module)

    def value(self, decisions: Mapping[str, int]) -> tuple[float, Detail]:
        """The metric, and what else there is to know of it. Raises CommandError."""
        self.done += 1
        candidate = self._candidate
        with tempfile.TemporaryDirectory(prefix="gate-") as name:
            folder = Path(name)
            image, log, given = folder / "module.o", folder / "module.log", folder / "decisions"
            given.write_text(decision_lines(decisions))
            command = candidate.development_command(
                self._module, image, log, [f"-mlgo-decisions={given}"] if decisions else []
            )
            run_command(
                command,
                timeout_s=candidate.timeout_s,
                memory_mib=candidate.memory_mib,
                env=candidate.environment,
            )
            costs = {}
            if self._metric.name in REPLAYED:
                costs = candidate.replayed(self._module, image)
            detail = detail_after(candidate.problem, image, log, costs)
            run = ModuleRun(
                name=self._module.name,
                digest=self._digest,
                status="ok",
                text=text_bytes(image),
                detail=pack(detail),
                **totals(costs),
            )
        values = self._metric.values([(self._before, run)])
        if values is None:
            raise GateError(f"{self._module.name}: has no {self._metric.name} to compare")
        return values[1], detail


def decision_lines(decisions: Mapping[str, int]) -> str:
    """A file of -mlgo-decisions."""
    return "".join(f"{key} {value}\n" for key, value in decisions.items())


def bisect(
    before: ModuleRun,
    candidate: Candidate,
    module: Module,
    metric_name: str,
    limits: MetricLimits,
    most: int,
) -> Bisection:
    """Finds the decisions that make one module worse.

    Args:
      before: the module in the baseline.
      metric_name: one of BISECTED.
      limits: of the metric; that of modules counts.
      most: compilations, after which the fewest so far are returned.

    Raises:
      GateError: the module is not worse than allowed, or did not compile in the baseline.
      CommandError, CostError: it does not compile, or cannot be replayed, with the candidate.
      LogError, ObjectFileError: the compiler left a damaged file.
    """
    (metric,) = (one for one in METRICS if one.name == metric_name)
    if not before.is_ok:
        raise GateError(f"{before.name}: did not compile in the baseline: {before.message}")
    if before.digest != fingerprint(module):
        raise GateError(f"{module.name}: is another module than in the baseline; record one anew")
    compilations = _Compilations(module, candidate, before, metric)
    values = metric.values([(before, before)])
    after, detail = compilations.value({})
    if values is None:
        raise GateError(f"{module.name}: has no {metric_name} in the baseline")
    start = values[0]
    allowed = limits.allowed("module", start, 0.0) or 0.0
    if after - start <= allowed:
        raise GateError(
            f"{module.name}: {metric_name} is {after:g}, {start:g} in the baseline: no worse than "
            f"the {allowed:g} that the limits allow a module; name one that is, or other limits"
        )
    mine = detail_of(before).decisions
    known = {**detail.decisions, **mine}
    differing = [
        key for key, decision in detail.decisions.items() if mine.get(key, decision) != decision
    ]

    @functools.cache
    def is_worse_with(keys: frozenset[str]) -> bool:
        if compilations.done >= most:
            raise _ExhaustedError
        chosen = {key: detail.decisions[key] for key in keys}
        try:
            return compilations.value({**known, **chosen})[0] - start > allowed
        except CommandError as error:
            # An eviction may rule another out: the compiler refuses the mix, which tells nothing.
            logging.info("%s: %d decisions cannot be mixed: %s", module.name, len(keys), error)
            return False

    def is_worse(keys: Sequence[str]) -> bool:
        return is_worse_with(frozenset(keys))

    best = list(differing)
    minimal = True

    def keep(keys: Sequence[str]) -> None:
        best[:] = keys
        logging.info("%s: %d decisions are enough", module.name, len(keys))

    try:
        if is_worse([]):
            best = []
        else:
            minimize(differing, is_worse, keep)
    except _ExhaustedError:
        minimal = False
    causes = {key: detail.decisions[key] for key in best}
    return Bisection(
        module.name,
        metric_name,
        metric.unit,
        start,
        after,
        allowed,
        len(differing),
        known,
        causes,
        compilations.value({**known, **causes})[0],
        minimal,
        compilations.done,
    )


def minimize(
    items: Sequence[str],
    fails: Callable[[Sequence[str]], bool],
    keep: Callable[[Sequence[str]], None] = lambda items: None,
) -> list[str]:
    """Some of the items that fail together, and would not without any one of them (ddmin).

    Args:
      items: that fail.
      fails: whether some items fail; asked often for the same.
      keep: told of each smaller set.
    """
    left, parts = list(items), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        chunks = [left[i : i + size] for i in range(0, len(left), size)]
        rests = [[one for one in left if one not in set(chunk)] for chunk in chunks]
        found = next((chunk for chunk in chunks if fails(chunk)), None)
        if found is not None:
            left, parts = found, 2
        else:
            # With two parts, the rest of one is the other.
            rest = next((rest for rest in rests if fails(rest)), None) if len(chunks) > 2 else None
            if rest is not None:
                left, parts = rest, max(parts - 1, 2)
            elif parts >= len(left):
                break
            else:
                parts = min(2 * parts, len(left))
                continue
        keep(left)
    return left
