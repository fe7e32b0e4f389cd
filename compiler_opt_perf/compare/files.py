# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads what pages are made of: comparisons, and curves of trainings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from compiler_opt_perf.compare.comparison import Comparison
from compiler_opt_perf.compare.summary import FORMAT, VERSION
from compiler_opt_perf.run.curve import curve_values
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import Count, JsonError, decode, parse_json, read_form

_COMPARE = "write it with `cop compare policy`"
#: A change against the default's cost that a plot can show.
Change = Annotated[float, msgspec.Meta(gt=-(2.0**64), lt=2.0**64)]


class ReportError(UserError):
    """A comparison or a training curve that cannot be read."""


@dataclass(frozen=True)
class Point:
    """A step of a training.

    Attributes:
      step: generation or round; 0 is the start, which has no candidates.
      values: what was measured, by name; `unit_of` tells the units.
    """

    step: int
    values: Mapping[str, float]


class _Row(msgspec.Struct, frozen=True):
    """What each row of a curve has; further fields are those of its stage."""

    generation: Count
    validation_of_mean: Change | None
    candidates_mean: Change | None = None
    validation_of_fittest: Change | None = None


#: A change against the default's cost, -0.01 for 1% less; and a part of a whole, from 0 to 1.
CHANGE, SHARE = "change", "share"
# Of the fields of a curve; those that are not here are plain numbers, whatever wrote them.
_UNITS = {
    "validation": CHANGE,
    "validation_of_mean": CHANGE,
    "validation_of_fittest": CHANGE,
    "candidates_mean": CHANGE,
    "candidates_best": CHANGE,
    "equals_default": SHARE,
    "value_told": SHARE,
    "best_saves": SHARE,
}


def unit_of(field: str) -> str:
    """CHANGE, SHARE, or nothing for a plain number; "validation/NAME" is as "validation"."""
    return _UNITS.get(field.partition("/")[0], "")


def read_comparison(path: Path) -> Comparison:
    """Reads what `summary.to_json` wrote. Raises ReportError that names file and field."""
    comparison = read_form(path, Comparison, (FORMAT, VERSION), ReportError, _COMPARE)
    for number, module in enumerate(comparison.modules):
        pairs = {len(module.compile_default), len(module.compile_policy)}
        times = (*module.compile_default, *module.compile_policy)
        if len(pairs) > 1 or pairs == {0} or not all(times):
            raise ReportError(
                f"{path}: $.modules[{number}]: compile times: expected pairs above 0; {_COMPARE}"
            )
    return comparison


def read_curve(path: Path) -> list[Point]:
    """Reads a training run's `curve.jsonl`. Raises ReportError that names the line."""
    remedy = (
        "go on with the training, which writes it again, or name a folder of `cop train policy`"
    )
    try:
        lines = read_input(path).splitlines()
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}; {remedy}") from error
    points = []
    for number, line in enumerate(lines, 1):
        try:
            row = decode(line, _Row, f"{path}:{number}")
            points.append(Point(row.generation, curve_values(parse_json(line))))
        except JsonError as error:
            raise ReportError(f"{error}; {remedy}") from error
    return points
