# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fewest decisions that make a module worse.

Delta debugging (ddmin: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
IEEE TSE 28(2), 2002) over the decisions that the baseline and the candidate take differently: some
are taken as the candidate does, all others as in the baseline (-mlgo-decisions).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from absl import logging

from compiler_opt_perf.compare.baseline import detail_of
from compiler_opt_perf.compare.question import Question
from compiler_opt_perf.compare.subject import Subject
from compiler_opt_perf.run.command import CommandError


@dataclass(frozen=True)
class Bisection:
    """Why a module is worse.

    Attributes:
      question: what is worse.
      after: its value with the candidate.
      differing: decisions that the two take differently.
      baseline: decisions by key, as the baseline takes them, and the candidate those that the
        baseline does not know.
      causes: the fewest of the candidate's that are worse than allowed, with all others as in the
        baseline; none where the baseline's decisions are worse, too: then it is no decision.
      value: with these.
      minimal: whether no one of them can be left out.
      compilations: that it took.
    """

    question: Question
    after: float
    differing: int
    baseline: Mapping[str, int]
    causes: Mapping[str, int]
    value: float
    minimal: bool
    compilations: int


class _ExhaustedError(Exception):
    """No further compilation is allowed."""


def bisect(question: Question, candidate: Subject, most: int) -> Bisection:
    """Finds the decisions that make one module worse.

    Args:
      question: of one of OF_DECISIONS.
      most: compilations, after which the fewest so far are returned.

    Raises:
      CompareError: the module is not worse than allowed.
      CommandError, CostError: it does not compile, or cannot be replayed, with the candidate.
      LogError, ObjectFileError: the compiler left a damaged file.
    """
    module = question.module
    after, detail = question.ask(candidate)
    question.require_worse(after)
    mine = detail_of(question.before).decisions
    known = {**detail.decisions, **mine}
    differing = [
        key for key, decision in detail.decisions.items() if mine.get(key, decision) != decision
    ]

    @functools.cache
    def is_worse_with(keys: frozenset[str]) -> bool:
        if question.asked >= most:
            raise _ExhaustedError
        chosen = {key: detail.decisions[key] for key in keys}
        try:
            return question.is_worse(question.ask(candidate, {**known, **chosen})[0])
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
    value, _ = question.ask(candidate, {**known, **causes})
    return Bisection(question, after, len(differing), known, causes, value, minimal, question.asked)


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
