# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The result of a training on labels: linked text of programs that it never saw."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.training.result import WORSE


def mean_change(changes: Sequence[float]) -> float:
    """The geometric mean of changes against the default."""
    return math.exp(math.fsum(math.log1p(one) for one in changes) / len(changes)) - 1.0


@dataclass(frozen=True)
class ProgramResult:
    """A test program with the policy.

    Attributes:
      name: of the program.
      linked: bytes of its linked text, with the compiler's own policy and with this one.
      objects: the same of its objects.
    """

    name: str
    linked: tuple[int, int]
    objects: tuple[int, int]

    @property
    def change(self) -> float:
        """Of the linked text, -0.01 for 1% less."""
        return self.linked[1] / self.linked[0] - 1.0


@dataclass(frozen=True)
class ImitationResult:
    """The result.

    Attributes:
      policy: directory of the published policy.
      round, lead: which candidate it was.
      labels: that it was fitted to.
      validation_change: in geometric mean over programs; optimistic, for it was chosen by them.
      programs: the test programs.
    """

    policy: Path
    round: int
    lead: float
    labels: int
    validation_change: float
    programs: tuple[ProgramResult, ...]

    @property
    def change(self) -> float:
        """Of the linked text of the test programs, in geometric mean."""
        return mean_change([program.change for program in self.programs])

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if self.change > 0:
            return WORSE
        return "better than the default" if self.change < 0 else "as good as the default"


def table(result: ImitationResult) -> str:
    """The test programs, in Markdown."""
    lines = [
        "| program | linked text | with the policy | change | objects |",
        "|---|---|---|---|---|",
    ]
    for one in result.programs:
        objects = one.objects[1] / one.objects[0] - 1.0
        lines.append(
            f"| {one.name} | {one.linked[0]:,} | {one.linked[1]:,} | {100 * one.change:+.2f}% | "
            f"{100 * objects:+.2f}% |"
        )
    objects = mean_change([one.objects[1] / one.objects[0] - 1.0 for one in result.programs])
    lines.append(f"| geometric mean | | | {100 * result.change:+.2f}% | {100 * objects:+.2f}% |")
    return "\n".join(lines) + "\n"
