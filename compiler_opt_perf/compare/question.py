# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One module and one metric: whether it is worse than allowed with this or that."""

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from absl import logging

from compiler_opt_perf.compare.baseline import Detail, ModuleRow, pack
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.limits import MetricLimits
from compiler_opt_perf.compare.measure import detail_after, fingerprint, totals
from compiler_opt_perf.compare.metrics import METRICS
from compiler_opt_perf.compare.subject import REPLAYED, Subject
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy.problem import decision_lines
from compiler_opt_perf.run.command import CommandError, run_command

#: Of any failure of the compiler: an error, a crash or a time limit.
FAILURES = "failures"
#: What a decision of a policy can make worse, and is the same each time.
OF_DECISIONS = ("text", "score", "instructions", "cycles")


class Question:
    """Whether a module is worse than allowed.

    Attributes:
      module: that is compiled.
      before: what it was in the baseline.
      metric: one of OF_DECISIONS, or FAILURES.
      start: the baseline's value.
      allowed: how much worse a module may be.
      asked: compilations so far.
    """

    def __init__(self, before: ModuleRow, module: Module, metric: str, limits: MetricLimits):
        """Asks of one module.

        Args:
          limits: of the metric; that of modules counts.

        Raises:
          CompareError: the module did not compile in the baseline, has no such metric there, or is
            another one.
        """
        if not before.is_ok:
            raise CompareError(f"{before.name}: did not compile in the baseline: {before.message}")
        if before.digest != fingerprint(module):
            raise CompareError(f"{module.name}: is another module than in the baseline; record one")
        (self.metric,) = (one for one in METRICS if one.name == metric)
        self.module, self.before, self.asked = module, before, 0
        values = self.metric.values([(before, before)])
        if values is None:
            raise CompareError(f"{module.name}: has no {metric} in the baseline")
        self.start = values[0]
        self.allowed = limits.allowed("module", self.start, 0.0) or 0.0

    def ask(
        self, candidate: Subject, decisions: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[float, Detail]:
        """The metric with some decisions given, and what else there is to know of it.

        Raises:
          CommandError, CostError: it does not compile, or cannot be replayed.
          LogError, ObjectFileError: the compiler left a damaged file.
        """
        self.asked += 1
        with tempfile.TemporaryDirectory(prefix="gate-") as name:
            folder = Path(name)
            image, log, given = folder / "module.o", folder / "module.log", folder / "decisions"
            given.write_text(decision_lines(decisions))
            command = candidate.development_command(
                self.module, image, log, [f"-mlgo-decisions={given}"] if decisions else []
            )
            run_command(
                command,
                timeout_s=candidate.timeout_s,
                memory_mib=candidate.memory_mib,
                env=candidate.environment,
            )
            needed = [name for name in REPLAYED if name == self.metric.name]
            costs = candidate.replayed(self.module, image, needed)
            detail = detail_after(candidate.problem, image, log, costs)
            run = ModuleRow(
                name=self.module.name,
                digest=self.before.digest,
                status="ok",
                text=text_bytes(image),
                detail=pack(detail),
                **totals(costs),
            )
        values = self.metric.values([(self.before, run)])
        if values is None:
            raise CompareError(f"{self.module.name}: has no {self.metric.name} to compare")
        return values[1], detail

    def value(self, candidate: Subject) -> float:
        """The metric; where the module does not compile, 1 of FAILURES, infinite of others.

        Raises LogError, ObjectFileError, CostError.
        """
        try:
            return self.ask(candidate)[0]
        except CommandError as error:
            logging.info("%s: %s", self.module.name, error)
            return 1.0 if self.metric.name == FAILURES else math.inf

    def is_worse(self, value: float) -> bool:
        """Than the limits allow."""
        return value - self.start > self.allowed

    def require_worse(self, value: float) -> None:
        """Raises CompareError where there is nothing to find."""
        if not self.is_worse(value):
            raise CompareError(
                f"{self.module.name}: {self.metric.name} is {value:g}, {self.start:g} in the "
                f"baseline: no worse than the {self.allowed:g} that the limits allow a module; "
                "name one that is, or other limits"
            )
