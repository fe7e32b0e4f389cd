# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of programs from one way of compiling to another, in percent, and tables of them."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from benchmarks.results import Cell, Interval, Table
from compiler_opt_perf.run.rounds import TimeChange

# An interval over programs needs so many.
_LEAST_PROGRAMS = 3


def percents(value: float, low: float, high: float) -> Interval:
    """Logarithms of ratios as changes in percent."""
    one, two, three = (round(100 * float(np.expm1(log)), 4) for log in (value, low, high))
    return one, two, three


def percent_change(value: float, base: float) -> float:
    """The change from `base` to `value`, in percent."""
    return round(100 * (value / base - 1), 4)


def measured(change: TimeChange) -> Interval:
    """A measured change in percent."""
    return round(100 * change.value, 4), round(100 * change.low, 4), round(100 * change.high, 4)


def counted_changes(
    totals: Mapping[str, Mapping[str, int]], pairs: Mapping[str, tuple[str, str]]
) -> dict[str, dict[str, float]]:
    """Changes in percent, by program and name of a pair.

    Args:
      totals: counts by program and way.
      pairs: by name, a way and the one with which it is compared. Pairs with an unknown way are
        left out.
    """
    return {
        program: {
            name: percent_change(own[one], own[other])
            for name, (one, other) in pairs.items()
            if one in own and other in own
        }
        for program, own in totals.items()
    }


def mean_change(changes: Sequence[float]) -> float | Interval:
    """The geometric mean over programs of changes in percent.

    From three programs on it has its 95% interval over other programs of the kind (Student's t).
    """
    logs = np.log1p(np.array(changes) / 100)
    mean, count = float(logs.mean()), len(logs)
    if count < _LEAST_PROGRAMS:
        return percents(mean, mean, mean)[0]
    half = float(stdtrit(count - 1, 0.975) * logs.std(ddof=1) / count**0.5)
    return percents(mean, mean - half, mean + half)


def mean_and_resolved(changes: Sequence[Interval]) -> list[Cell]:
    """Of at least one change: the mean, and how many are resolved to be below and above zero."""
    return [
        mean_change([value for value, _, _ in changes]),
        sum(high < 0 for _, _, high in changes),
        sum(low > 0 for _, low, _ in changes),
    ]


def changes_table(
    name: str,
    caption: str,
    head: Mapping[str, str],
    facts: Mapping[str, Sequence[Cell]],
    changes: Mapping[str, Mapping[str, float | Sequence[float]]],
    columns: Iterable[str],
) -> list[Table]:
    """A table with a row a program, and geometric means over the programs.

    Args:
      head: formats of the columns after the program's name.
      facts: the cells of these columns, by program.
      changes: by program and column, a change in percent or its interval.
      columns: the columns of changes; those of no program are left out.

    Returns:
      One table, or none if no column is left.
    """
    columns = [one for one in columns if any(one in own for own in changes.values())]
    rows: list[list[Cell]] = [
        [program, *facts[program], *(_cell(own.get(column)) for column in columns)]
        for program, own in changes.items()
    ]
    if len(changes) > 1:
        means = [
            mean_change([_estimate(own[column]) for own in changes.values() if column in own])
            for column in columns
        ]
        rows.append(["geometric mean", *[None] * len(head), *means])
    formats = {"program": "text", **head, **dict.fromkeys(columns, "percent:+2")}
    return [Table.of(name, caption, formats, rows)] if columns else []


def _cell(change: float | Sequence[float] | None) -> Cell:
    if change is None or isinstance(change, float):
        return change
    value, low, high = change
    return value, low, high


def _estimate(change: float | Sequence[float]) -> float:
    return change if isinstance(change, float) else change[0]
