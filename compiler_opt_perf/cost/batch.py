# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluates many candidates in parallel."""

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
    """The cost of each candidate, in order, or the error that it raised.

    Candidates are evaluated in parallel, each by one thread.

    Args:
      evaluator: a name in EVALUATORS.
      candidates: for each candidate, its object files or its binary.
      context: inputs of the evaluator.
      pool: workers.
      label: title of the progress display; None shows none.
    """
    single = dataclasses.replace(context, threads=1)
    return pool.map(functools.partial(_cost, evaluator, single), candidates, label=label)


def _cost(evaluator: str, context: Context, objects: Sequence[Path]) -> Cost:
    return EVALUATORS[evaluator].cost(objects, context)
