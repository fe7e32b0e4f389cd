# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Costs of many candidates at once."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

from compiler_opt_perf.cost.evaluator import EVALUATORS, Context, Cost
from compiler_opt_perf.run.executor import Executor, Outcome


def costs(
    evaluator: str,
    candidates: Sequence[Sequence[Path]],
    context: Context,
    pool: Executor,
    label: str | None = None,
) -> list[Outcome[Cost]]:
    """The cost of each candidate, in order; a failure takes the place of its cost.

    Candidates are evaluated side by side, each by one thread.

    Args:
      evaluator: name, one of EVALUATORS.
      candidates: the object files of each candidate, or its binary.
      label: with one, progress is shown.
    """
    single = dataclasses.replace(context, threads=1)
    return pool.map(functools.partial(_cost, evaluator, single), candidates, label=label)


def _cost(evaluator: str, context: Context, objects: Sequence[Path]) -> Cost:
    return EVALUATORS[evaluator].cost(objects, context)
