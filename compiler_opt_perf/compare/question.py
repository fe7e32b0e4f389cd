# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One module and one metric: whether it is worse than allowed with this or that."""

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType

from absl import logging

from compiler_opt_perf.compare.baseline import Detail, ModuleRow, detail_of
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.limits import MetricLimits
from compiler_opt_perf.compare.measure import Job, fingerprint, measure
from compiler_opt_perf.compare.metrics import METRICS
from compiler_opt_perf.compare.subject import REPLAYED, Subject
from compiler_opt_perf.corpus.corpus import Module
from compiler_opt_perf.run.command import CommandError

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
        self, subject: Subject, decisions: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[float, Detail]:
        """The metric with some decisions given, and the detail of the module.

        Raises:
          CommandError: the module does not compile.
          CompareError: the recorded run cannot be replayed.
          LogError, ObjectFileError, RemarksError: the compiler left a damaged file.
        """
        self.asked += 1
        replay = tuple(name for name in REPLAYED if name == self.metric.name)
        once = dataclasses.replace(subject, repetitions=1, release=None)
        row = measure(Job(self.module, once, decisions=decisions, replay=replay))
        values = self.metric.values([(self.before, row)])
        if values is None:
            problem = row.unreplayed or f"has no {self.metric.name} to compare"
            raise CompareError(f"{self.module.name}: {problem}")
        return values[1], detail_of(row)

    def value(self, subject: Subject) -> float:
        """The metric; where the module does not compile, 1 of FAILURES, infinite of others.

        Raises as `ask` does, but for CommandError.
        """
        try:
            return self.ask(subject)[0]
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
