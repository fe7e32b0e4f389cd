# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Local search over the inlining decisions of one module: how small could any policy make it?

All decisions are flipped (training.labels); of those flips that made the module smaller, the best
ones are taken together, as many as pay; and again, until no flip does. After Theodoridis, Grosser
and Su, "Understanding and exploiting optimal function inlining", ASPLOS 2022, section 5.

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from compiler_opt_perf.training.compilation import scratch
from compiler_opt_perf.training.label_files import Labels
from compiler_opt_perf.training.labels import Flipper, LabelJob


@dataclass(frozen=True)
class Found:
    """The end of a search.

    Attributes:
      module: its name.
      default: bytes that it began with; copies count as parts.
      best: bytes that it ended with.
      decisions: by key, those that the search gave; one may have been given back.
      rounds: the labels of each round, the first around the decisions that it began with.
      compilations: that it took.
    """

    module: str
    default: float
    best: float
    decisions: dict[str, int]
    rounds: tuple[Labels, ...]
    compilations: int


@dataclass(frozen=True)
class SearchJob:
    """A module to search, and after how many rounds to give up."""

    of: LabelJob
    rounds: int


def search(job: SearchJob) -> Found:
    """Searches one module. In a pool's worker. Raises as `training.labels.label`."""
    with scratch() as folder:
        flipper = Flipper(job.of, folder)
        labels = flipper.labels(job.of.decisions)
        default = best = labels.bytes
        taken, rounds = dict(job.of.decisions), [labels]
        while better := _best_together(flipper, job.of, taken, labels):
            best, taken = better
            if len(rounds) == job.rounds:
                break
            labels = flipper.labels(taken)
            rounds.append(labels)
        name = job.of.module.name
        return Found(name, default, best, taken, tuple(rounds), flipper.compilations)


def _best_together(
    flipper: Flipper, job: LabelJob, taken: Mapping[str, int], labels: Labels
) -> tuple[float, dict[str, int]] | None:
    """Bytes and decisions of the best flips together, as many as pay; None when none does."""
    decided = labels.observations[job.compiler.problem.decision].reshape(-1).tolist()
    rows = sorted(zip(labels.difference.tolist(), labels.keys, decided, strict=True))
    smaller = [(key, 1 - decision) for difference, key, decision in rows if difference < 0]
    best = None
    # All of them may get in one another's way: also the best half, the best quarter, ...
    count = len(smaller)
    while count:
        decisions = {**taken, **dict(smaller[:count])}
        size = flipper.compile(decisions)[0].weighted(job.copies)
        if size < (best[0] if best else labels.bytes):
            best = size, decisions
        count //= 2
    return best
