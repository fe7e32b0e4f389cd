# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Local search over the inlining decisions of one module: how small could any policy make it?

All decisions are flipped (training.labels); of those flips that made the module smaller, the best
ones are taken together, as many as pay; and again, until no flip does. Again are only flipped those
that can change a function which became another one. After Theodoridis, Grosser and Su,
"Understanding and exploiting optimal function inlining", ASPLOS 2022, section 5.

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from compiler_opt_perf.cost.size import FunctionSizes
from compiler_opt_perf.training.compilation import scratch
from compiler_opt_perf.training.labels import Flipper, LabelJob, reach_of


@dataclass(frozen=True)
class Found:
    """The end of a search.

    Attributes:
      module: its name.
      default: bytes that it began with; copies count as parts.
      best: bytes that it ended with.
      decisions: by key, those that the search gave; one may have been given back.
      rounds: how often decisions were flipped, the last time in vain if it came to an end.
      compilations: that it took.
    """

    module: str
    default: float
    best: float
    decisions: dict[str, int]
    rounds: int
    compilations: int


@dataclass(frozen=True)
class SearchJob:
    """A module to search, all its sites, and after how many rounds to give up."""

    of: LabelJob
    rounds: int


@dataclass(frozen=True)
class _Flipped:
    """What decisions lead to, and what each would change in bytes, taken the other way.

    Attributes:
      sizes: bytes by function.
      taken: all decisions, by key.
      difference: by key.
    """

    sizes: FunctionSizes
    taken: dict[str, int]
    difference: dict[str, float]


def search(job: SearchJob) -> Found:
    """Searches one module. In a pool's worker. Raises as `training.labels.label`."""
    with scratch() as folder:
        flipper = Flipper(job.of, folder)
        given = dict(job.of.decisions)
        flipped = _flip(flipper, given, None)
        default = best = flipped.sizes.weighted(job.of.copies)
        rounds = 1
        while better := _best_together(flipper, job.of, given, flipped):
            best, given = better
            if rounds == job.rounds:
                break
            flipped = _flip(flipper, given, flipped)
            rounds += 1
        name = job.of.module.name
        return Found(name, default, best, given, rounds, flipper.compilations)


def _flip(flipper: Flipper, given: Mapping[str, int], before: _Flipped | None) -> _Flipped:
    """Flips each decision of which it is not known from `before` what that changes."""
    sizes, log = flipper.compile(given)
    taken = flipper.taken(log)
    known = {} if before is None else _unchanged(before, sizes, taken)
    unknown = [key for key in log.keys if key not in known]
    return _Flipped(sizes, taken, known | flipper.flips(unknown, taken, sizes, given))


def _unchanged(
    before: _Flipped, sizes: FunctionSizes, taken: Mapping[str, int]
) -> dict[str, float]:
    """Of flips, the differences that are what they were, as all that they can change is."""
    old, new = reach_of(before.taken, before.sizes.aliases), reach_of(taken, sizes.aliases)
    names = before.sizes.keys() | sizes.keys()
    others = {name for name in names if before.sizes.get(name) != sizes.get(name)}
    for key in old.keys() | new.keys():
        if before.taken.get(key) != taken.get(key):
            others |= old.get(key, frozenset()) | new.get(key, frozenset())
    return {
        key: before.difference[key]
        for key, functions in new.items()
        if old.get(key) == functions and functions.isdisjoint(others)
    }


def _best_together(
    flipper: Flipper, job: LabelJob, given: Mapping[str, int], flipped: _Flipped
) -> tuple[float, dict[str, int]] | None:
    """Bytes and decisions of the best flips together, as many as pay; None when none does."""
    rows = sorted((difference, key) for key, difference in flipped.difference.items())
    smaller = [(key, 1 - flipped.taken[key]) for difference, key in rows if difference < 0]
    before = flipped.sizes.weighted(job.copies)
    best = None
    # All of them may get in one another's way: also the best half, the best quarter, ...
    count = len(smaller)
    while count:
        decisions = {**given, **dict(smaller[:count])}
        size = flipper.compile(decisions)[0].weighted(job.copies)
        if size < (best[0] if best else before):
            best = size, decisions
        count //= 2
    return best
