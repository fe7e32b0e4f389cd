# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a training must remember to go on exactly where it stopped."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from compiler_opt_perf.execution.files import atomic_write
from compiler_opt_perf.execution.json_text import (
    Count,
    Finite,
    JsonError,
    convert,
    decode,
    shown,
)
from compiler_opt_perf.policies.arrays import (
    ArraysError,
    read_arrays,
    require_vector,
    write_arrays,
)
from compiler_opt_perf.policies.network import FloatArray, Normalisation
from compiler_opt_perf.training.adam import Adam
from compiler_opt_perf.training.evolution_strategies import State

_VERSION = 2
_NAMES = (
    *("version", "mean", "steps", "first_moment", "second_moment", "best", "warm_start"),
    *("center", "inverse_scale", "record"),
)


class CheckpointError(Exception):
    """A checkpoint that cannot be read."""


@dataclass(frozen=True)
class Checkpoint:
    """The state after a generation.

    Attributes:
      state: of the evolution strategies.
      best: weights that cost least on the validation modules so far, and failed on none.
      warm_start: weights that the evolution strategies began with.
      normalisation: of the network's inputs.
      record: JSON-able: `curve` (a record for each generation), `modules` (names, by purpose),
        `best_generation`, `best_change`, accuracy and change of the warm start, counts of
        compilations and failures, and, once the training has ended, `ended`.
    """

    state: State
    best: FloatArray
    warm_start: FloatArray
    normalisation: Normalisation
    record: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Writes the file, atomically. Raises FileWriteError."""
        with atomic_write(path) as temporary:
            write_arrays(
                temporary,
                version=np.array(_VERSION),
                mean=self.state.mean,
                steps=np.array(self.state.adam.steps),
                first_moment=self.state.adam.first_moment,
                second_moment=self.state.adam.second_moment,
                best=self.best,
                warm_start=self.warm_start,
                center=self.normalisation.center,
                inverse_scale=self.normalisation.inverse_scale,
                record=np.frombuffer(json.dumps(self.record, allow_nan=False).encode(), np.uint8),
            )

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Reads the file.

        Raises:
          CheckpointError: damaged or of another version.
        """
        try:
            version = int(read_arrays(path, ["version"])["version"])
            if version != _VERSION:
                raise CheckpointError(
                    f"{path}: version {version}, this program reads {_VERSION}; "
                    "remove the training's folder to start again"
                )
            arrays = read_arrays(path, _NAMES)
            size, features = arrays["mean"].size, arrays["center"].size
            for name in ("mean", "first_moment", "second_moment"):
                require_vector(name, arrays[name], "float64", size)
            for name in ("best", "warm_start"):
                require_vector(name, arrays[name], "float32", size)
            for name in ("center", "inverse_scale"):
                require_vector(name, arrays[name], "float32", features)
            steps = int(arrays["steps"])
            record = _read_record(arrays["record"].tobytes(), steps)
        except (ArraysError, ValueError, TypeError, OverflowError) as error:
            raise CheckpointError(
                f"{path}: damaged ({error}); remove it to start the training again"
            ) from error
        return cls(
            state=State(
                arrays["mean"], Adam(steps, arrays["first_moment"], arrays["second_moment"])
            ),
            best=arrays["best"],
            warm_start=arrays["warm_start"],
            normalisation=Normalisation(arrays["center"], arrays["inverse_scale"]),
            record=record,
        )


class _Point(msgspec.Struct, frozen=True):
    generation: int
    elapsed_s: Finite


class _Ended(msgspec.Struct, frozen=True):
    budget_s: Finite
    test_change: Finite
    test_failed: tuple[str, ...]


class _Record(msgspec.Struct, frozen=True):
    """What a training needs of the record to go on; its files and logs have the rest of it."""

    best_change: Finite
    warm_start_change: Finite
    best_generation: int
    compilations: Count
    failures: Count
    curve: tuple[_Point, ...]
    modules: dict[str, Any]
    warm_start_accuracy: dict[str, Any]
    ended: _Ended | None = None


def _read_record(data: bytes, steps: int) -> dict[str, Any]:
    """The record of a checkpoint after so many steps. Raises JsonError."""
    record = decode(data, dict[str, Any], "record")
    generations = [point.generation for point in convert(record, _Record, "record").curve]
    # A damaged number of steps may be larger than any list.
    if len(generations) != steps + 1 or generations != list(range(len(generations))):
        raise JsonError(
            f"record: $.curve: expected generations 0 to {steps}, found {shown(generations)}"
        )
    return record
