# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The settings of a training: what each means, its default and the values that make sense."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler_opt_perf.policies.network import MAX_LAYER_INPUTS

#: Settings by which a continued training may differ from the one that it continues.
FREE_SETTINGS = ("generations", "budget_s", "workers")

_MOST_LAYERS = 8


class ConfigError(Exception):
    """An unknown setting, or a value outside its range."""


def _setting(default: Any, low: float, high: float, meaning: str) -> Any:
    """A field, and the range of its value (of each of its values) with both ends."""
    metadata = {"low": low, "high": high, "meaning": meaning}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Config:
    """The settings; `Config.describe` lists them.

    Raises:
      ConfigError: a value of another type or out of its range; names setting, value and range.
    """

    seed: int = _setting(1, 0, 2**63 - 1, "seed of every random choice")
    generations: int = _setting(50, 0, 10**6, "generations of evolution strategies, in all")
    budget_s: float = _setting(
        0.0, 0, 10**9, "no generation begins that would end after so many seconds; 0: no limit"
    )
    workers: int = _setting(0, 0, 1024, "processes that compile; 0: one a core")
    timeout_s: float = _setting(60.0, 0.1, 86400, "limit of one compilation, in seconds")
    memory_mib: int = _setting(
        4096, 64, 2**24, "limit of the address space of a compilation, in MiB"
    )
    hidden: tuple[int, ...] = _setting((16, 8), 1, MAX_LAYER_INPUTS, "widths of the hidden layers")
    validation_share: float = _setting(
        0.2, 0, 0.9, "share of the modules, at least one, by which candidates are chosen"
    )
    test_share: float = _setting(
        0.2, 0, 0.9, "share of the modules, at least one, on which the result is measured, once"
    )
    max_decisions: int = _setting(
        1000, 1, 10**9, "modules with more decisions take part in a share of the generations"
    )
    warm_starts: int = _setting(
        3, 1, 100, "imitations of the default policy to begin with; the cheapest is taken"
    )
    warm_start_steps: int = _setting(1000, 0, 10**7, "gradient steps of an imitation")
    warm_start_batch: int = _setting(512, 1, 10**6, "decisions in a gradient step")
    warm_start_learning_rate: float = _setting(0.02, 0, 10, "Adam's learning rate for imitations")
    label_smoothing: float = _setting(
        0.1, 0, 0.99, "probability that imitations spread over all decisions"
    )
    warm_start_rows: int = _setting(50_000, 1, 10**8, "logged decisions to imitate, at most")
    pairs: int = _setting(8, 1, 10**4, "antithetic pairs of candidates in a generation")
    sigma: float = _setting(0.06, 1e-4, 1, "standard deviation of the perturbations")
    learning_rate: float = _setting(0.015, 0, 1, "Adam's learning rate for evolution strategies")
    modules_per_generation: int = _setting(
        8, 1, 10**6, "modules on which the candidates of a generation are compared"
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not _fits(field, value):
                raise ConfigError(
                    f"setting {field.name}={_shown(value)}: expected {_expected(field)} "
                    f"({field.metadata['meaning']})"
                )
        if self.validation_share + self.test_share > 0.9:
            raise ConfigError(
                f"setting validation_share={self.validation_share} and "
                f"test_share={self.test_share}: expected a sum of at most 0.9, since some "
                "modules are needed to train on"
            )

    def changed(self, changes: Mapping[str, Any]) -> "Config":
        """A copy with other values, as JSON has them. Raises ConfigError."""
        known = {field.name: field for field in dataclasses.fields(self)}
        values: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in known:
                raise ConfigError(f"no setting {name!r}; there are\n{self.describe()}")
            if isinstance(value, list):
                value = tuple(value)
            if known[name].type is float and type(value) is int and abs(value) < 2**53:
                value = float(value)
            values[name] = value
        return dataclasses.replace(self, **values)

    def as_json(self) -> dict[str, Any]:
        """The values by name, as JSON has them."""
        values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return values

    @classmethod
    def describe(cls) -> str:
        """One line for each setting: name, default, range and meaning."""
        return "\n".join(
            f"  {field.name}={_shown(field.default)}: {field.metadata['meaning']}; "
            f"{_expected(field)}"
            for field in dataclasses.fields(cls)
        )


def _fits(field: "dataclasses.Field[Any]", value: Any) -> bool:
    low, high = field.metadata["low"], field.metadata["high"]
    if isinstance(field.default, tuple):
        return (
            isinstance(value, tuple)
            and len(value) <= _MOST_LAYERS
            and all(type(one) is int and low <= one <= high for one in value)
        )
    # True is an int to Python, and NaN is in no range.
    return type(value) is type(field.default) and low <= value <= high


def _expected(field: "dataclasses.Field[Any]") -> str:
    low, high = field.metadata["low"], field.metadata["high"]
    if isinstance(field.default, tuple):
        return f"a list of up to {_MOST_LAYERS} whole numbers from {low} to {high}"
    kind = "a whole number" if isinstance(field.default, int) else "a number"
    return f"{kind} from {low:g} to {high:g}" if high < 10**6 else f"{kind} from {low} to {high}"


def _shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        return f"{json.dumps(value):.60}"
    except (TypeError, ValueError):
        return f"{value!r:.60}"
