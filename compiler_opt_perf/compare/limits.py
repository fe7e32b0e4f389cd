# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much worse a candidate may be: a TOML file. The package has one, with comments."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.metrics import METRICS
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import JsonError, convert, parse_toml

#: The limits that hold where no others are given.
DEFAULT = Path(__file__).with_name("limits.toml")
#: What a value is of: one module, one program, or everything.
Level = Literal["module", "program", "total"]
LEVELS: tuple[Level, ...] = ("total", "program", "module")

_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much worse a value may be: the larger of two amounts.

    Attributes:
      absolute: in the metric's unit.
      relative: as a share of the baseline's value.
    """

    absolute: _Amount = 0.0
    relative: _Amount = 0.0


class MetricLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of one metric; a level without one is shown and not judged.

    Attributes:
      noise: a value may always be worse by the spread of repeated measurements times this.
    """

    total: Limit | None = None
    program: Limit | None = None
    module: Limit | None = None
    noise: _Amount = 0.0

    def allowed(self, level: Level, value: float, spread: float) -> float | None:
        """How much worse than `value` a value may be; None where there is no limit."""
        limit = {"total": self.total, "program": self.program, "module": self.module}[level]
        if limit is None:
            return None
        return max(limit.absolute, limit.relative * abs(value), self.noise * spread)


Limits = dict[str, MetricLimits]


def read_limits(path: Path) -> Limits:
    """Reads the limits of metrics.

    Raises:
      CompareError: the file is missing, not TOML, or a value is unknown or out of its range; names
        file and place.
    """
    try:
        limits = convert(parse_toml(read_input(path), path), Limits, path)
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}; `cop gate limits` prints some") from error
    except JsonError as error:
        raise CompareError(str(error)) from error
    names = [metric.name for metric in METRICS]
    unknown = [name for name in limits if name not in names]
    if unknown:
        raise CompareError(f"{path}: no metric {unknown[0]!r}; there are {', '.join(names)}")
    if not limits:
        raise CompareError(f"{path}: has no limits; `cop gate limits` prints some")
    return limits
