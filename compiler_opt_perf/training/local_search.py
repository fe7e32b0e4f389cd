# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Local search over the inlining decisions of one module: how small could any policy make it?

All decisions are flipped (training.labels); of those flips that made the module smaller, the best
ones are taken together, as many as pay; and again, until no flip does. After Theodoridis, Grosser
and Su, "Understanding and exploiting optimal function inlining", ASPLOS 2022, section 5.

The functions here run in pool workers: nothing that this module imports loads TensorFlow.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.training.labels import Flipper, LabelJob


@dataclass(frozen=True)
class Found:
    """The end of a search.

    Attributes:
      module: its name.
      default: bytes that it began with; copies count as parts.
      best: bytes that it ended with.
      decisions: by key, those that differ from the policy's.
      rounds: how often all decisions were flipped.
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
    """A module to search, and after how many rounds to give up."""

    of: LabelJob
    rounds: int


def search(job: SearchJob) -> Found:
    """Searches one module. In a pool's worker. Raises as `training.labels.label`."""
    with tempfile.TemporaryDirectory(prefix="search-") as name:
        flipper = Flipper(job.of, Path(name))
        taken = dict(job.of.decisions)
        default = best = flipper.bytes(flipper.compile(taken)[0])
        rounds = 0
        while rounds < job.rounds:
            rounds += 1
            smaller = _improvements(flipper, job.of, taken)
            better = None
            # All of them may get in one another's way: also the best half, the best quarter, ...
            count = len(smaller)
            while count:
                candidate = {**taken, **dict(smaller[:count])}
                size = flipper.bytes(flipper.compile(candidate)[0])
                if size < best:
                    best, better = size, candidate
                count //= 2
            if better is None:
                break
            taken = better
        return Found(job.of.module.name, default, best, taken, rounds, flipper.compilations)


def _improvements(flipper: Flipper, job: LabelJob, taken: dict[str, int]) -> list[tuple[str, int]]:
    """Flips that make the module smaller, with the decision they lead to; the best first."""
    labels = flipper.labels(taken)
    decided = labels.observations[job.compiler.problem.decision].reshape(-1).tolist()
    rows = zip(labels.difference.tolist(), labels.keys, decided, strict=True)
    return [(key, 1 - decision) for gain, key, decision in sorted(rows) if gain < 0]
