# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads what pages are made of: comparisons, and curves of trainings."""

from pathlib import Path
from typing import Annotated

import msgspec

from compiler_opt_perf.execution.files import read_input
from compiler_opt_perf.execution.json_text import Count, JsonError, decode, read_form
from compiler_opt_perf.report.comparison import Comparison
from compiler_opt_perf.report.summary import FORMAT, VERSION

_COMPARE = "write it with `cop compare`"
# What a plot can show.
_Change = Annotated[float, msgspec.Meta(gt=-(2.0**64), lt=2.0**64)]


class ReportError(Exception):
    """A comparison or a training curve that cannot be read."""


class CurvePoint(msgspec.Struct, frozen=True):
    """A row of a training curve: changes against the default's cost after an iteration.

    Attributes:
      generation: iterations so far; 0 is the start, which has no candidates.
      validation_of_mean, candidates_mean, validation_of_fittest: None where not measured.
    """

    generation: Count
    validation_of_mean: _Change | None
    candidates_mean: _Change | None = None
    validation_of_fittest: _Change | None = None


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


def read_curve(path: Path) -> list[CurvePoint]:
    """Reads a training run's `curve.jsonl`. Raises ReportError that names the line."""
    try:
        lines = read_input(path).splitlines()
    except OSError as error:
        raise ReportError(
            f"{path}: {error.strerror}; name a folder that `cop train` wrote"
        ) from error
    try:
        return [decode(line, CurvePoint, f"{path}:{i}") for i, line in enumerate(lines, 1)]
    except JsonError as error:
        raise ReportError(
            f"{error}; name a folder that `cop train` of this version wrote"
        ) from error
