# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Timed runs of variants of a program: interleaved, on one processor, in several layouts.

What the times of parts of such runs tell is for cost.ranking.Measured to say.
"""

import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging
from scipy.special import stdtrit

from compiler_opt_perf.cost.ranking import Estimate, Measured
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.memo import note, recall
from compiler_opt_perf.run.timing import SEGMENTS, Stopwatch, boundaries
from compiler_opt_perf.studies.common import StudyError, forward_times, percent
from compiler_opt_perf.studies.variant_builds import LAYOUTS

#: Twelve rounds of each layout find most parts undisturbed once.
ROUNDS = 12 * LAYOUTS
_SHORTEST_PART_S = 0.001
# An interval over programs needs so many.
_LEAST_PROGRAMS = 3
#: Of a table of what `described` returns.
HEAD = ("a run", "rounds", "resolves")


class Rounds(msgspec.Struct):
    """What was measured.

    Attributes:
      variants: names.
      moments: that each run tells the time of.
      boundaries: of the parts of a run, among the moments.
      seconds: [rounds, variants, parts].
      turns: how many layouts take turns.
    """

    variants: list[str]
    moments: int = 0
    boundaries: list[int] = []
    seconds: list[list[list[float]]] = []
    turns: int = LAYOUTS

    @property
    def layouts(self) -> tuple[int, ...]:
        """[rounds], the layout that ran in each."""
        return tuple(number % self.turns for number in range(len(self.seconds)))

    def measured(self) -> Measured:
        """What the times tell of the variants."""
        return Measured(self.seconds, self.layouts)

    def against_first(self) -> dict[str, Any]:
        """What the times tell of the variants beside the first, as studies keep it.

        Returns:
          `run_s`, seconds of the fastest run of the first; `rounds`, how many; `changes`, by
          variant the change of time with the ends of its 95% interval over layouts.
        """
        fastest = np.array(self.seconds)[:, 0].sum(axis=-1).min()
        pairs = {name: (name, self.variants[0]) for name in self.variants[1:]}
        changes = self.changes(pairs)
        return {"run_s": float(fastest), "rounds": len(self.seconds), "changes": changes}

    def changes(self, pairs: Mapping[str, tuple[str, str]]) -> dict[str, list[float]]:
        """By name, the change of time from the second of two variants to the first.

        Each with the ends of its 95% interval over layouts. Pairs of variants that are not there
        are left out.
        """
        measured = self.measured()
        logs, replicates = measured.log_time, measured.replicates
        found = {}
        for name, pair in pairs.items():
            if not set(pair) <= set(self.variants):
                continue
            one, other = map(self.variants.index, pair)
            change = logs[one] - logs[other], replicates[:, one] - replicates[:, other]
            estimate = Estimate.of(*change)
            values = (estimate.value, estimate.low, estimate.high)
            found[name] = [float(np.expm1(value)) for value in values]
        return found


def run_rounds(
    path: Path,
    binaries: Mapping[str, Sequence[Path]],
    arguments: Sequence[str],
    inputs: Mapping[str, Any],
    rounds: int,
    processor: int,
    *,
    label: str,
) -> Rounds:
    """Runs all variants in random order, round by round, until there are `rounds` rounds.

    Args:
      path: the note of what was measured; the rounds of earlier calls count.
      binaries: by name of the variant, the program in each layout; of all as many.
      inputs: what the run depends on besides the binaries.
      processor: number of the processor that runs are bound to.
      label: of messages.

    Raises:
      StudyError: a run has other moments than those before it, or a time that goes back.
      CommandError: a run failed.
    """
    names = list(binaries)
    turns = len(binaries[names[0]])
    inputs = {
        "binaries": [sha256(binary) for row in binaries.values() for binary in row],
        **inputs,
        "stopwatch": sha256(SEGMENTS),
        "shortest_part_s": _SHORTEST_PART_S,
    }
    measured = recall(path, inputs, Rounds) or Rounds(names, turns=turns)
    with Stopwatch() as stopwatch:
        for number in range(len(measured.seconds), rounds):
            order = list(range(len(names)))
            random.Random(number).shuffle(order)
            runs: list[list[float]] = [[] for _ in names]
            for i in order:
                argv = [str(binaries[names[i]][number % turns]), *arguments]
                times = forward_times(partial(stopwatch.times, argv, processor), argv[0])
                if not measured.boundaries:
                    measured.boundaries = boundaries(times, _SHORTEST_PART_S).tolist()
                    measured.moments = len(times)
                if len(times) != measured.moments:
                    raise StudyError(f"{argv[0]}: computes something else than in other runs")
                parts = np.diff(times[measured.boundaries])
                runs[i] = np.round(parts, 7).tolist()
            measured.seconds.append(runs)
            note(path, inputs, Rounds, measured)
            middle = statistics.median(map(sum, runs))
            logging.info("%s: round %d, median %.3f s", label, number, middle)
    return measured


def described(timed: Mapping[str, Any]) -> list[str]:
    """The cells of a program under `HEAD`, of what `Rounds.against_first` returned.

    It resolves changes of half an interval: the median of its changes.
    """
    halves = [(high - low) / 2 for _, low, high in timed["changes"].values()]
    resolves = f"{statistics.median(halves):.2%}" if halves else "–"
    return [f"{timed['run_s']:.2f} s", str(timed["rounds"]), resolves]


def changes_table(
    head: Sequence[str],
    rows: Mapping[str, Sequence[str]],
    changes: Mapping[str, Mapping[str, Sequence[float]]],
    columns: Iterable[str],
) -> list[str]:
    """A row a program, in Markdown, and geometric means of the programs that have a column.

    Args:
      head, rows: the first columns, and their cells by program.
      changes: by program and column, with the ends of an interval or without.
      columns: the others; those that no program has are left out, and without any the table is.
    """
    columns = [one for one in columns if any(one in own for own in changes.values())]
    if not columns:
        return []
    names = ["program", *head, *columns]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for name, own in changes.items():
        cells = [_shown(own.get(column)) for column in columns]
        lines.append(f"| {' | '.join([name, *rows[name], *cells])} |")
    if len(changes) > 1:
        means = [
            mean_change(np.log1p([own[column][0] for own in changes.values() if column in own]))
            for column in columns
        ]
        lines.append(f"| {' | '.join(['geometric mean', *[''] * len(head), *means])} |")
    return lines


def _shown(change: Sequence[float] | None) -> str:
    if change is None:
        return "–"
    return percent(change) if len(change) > 1 else f"{change[0]:+.2%}"


def mean_change(logs: npt.NDArray[np.float64]) -> str:
    """The geometric mean over programs, given the logarithms of their changes: float64 [programs].

    From three programs on with its 95% interval, as `interval`.
    """
    ends, mean = interval(logs), float(logs.mean())
    if ends is None:
        return f"{np.expm1(mean):+.2%}"
    return percent(np.expm1([mean, *ends]).tolist())


def interval(logs: npt.NDArray[np.float64]) -> list[float] | None:
    """The ends of the mean's 95% interval over other programs of the kind (Student's t).

    Args:
      logs: float64 [programs].

    Returns:
      None of less than three programs.
    """
    mean, count = float(logs.mean()), len(logs)
    if count < _LEAST_PROGRAMS:
        return None
    half = float(stdtrit(count - 1, 0.975) * logs.std(ddof=1) / count**0.5)
    return [mean - half, mean + half]
