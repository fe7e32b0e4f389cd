# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a training must remember to go on exactly where it stopped."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler_opt_perf.execution.files import atomic_write
from compiler_opt_perf.policies.network import FloatArray, Normalisation
from compiler_opt_perf.training.adam import Adam
from compiler_opt_perf.training.evolution_strategies import State

_VERSION = 1


class CheckpointError(Exception):
    """A checkpoint that cannot be read."""


@dataclass(frozen=True)
class Checkpoint:
    """The state after a generation.

    Attributes:
      state: of the evolution strategies.
      best: weights with the highest gain on the validation modules so far.
      warm_start: weights that the evolution strategies began with.
      normalisation: of the network's inputs.
      record: JSON-able: `curve` (a record a generation), `best_generation`, `best_gain`, accuracy
        of the warm start, counts of compilations and failures.
    """

    state: State
    best: FloatArray
    warm_start: FloatArray
    normalisation: Normalisation
    record: dict[str, Any]

    def save(self, path: Path) -> None:
        """Writes the file, atomically. Raises FileWriteError."""
        with atomic_write(path) as temporary, open(temporary, "wb") as stream:
            np.savez(
                stream,
                version=np.int64(_VERSION),
                mean=self.state.mean,
                steps=np.int64(self.state.adam.steps),
                first_moment=self.state.adam.first_moment,
                second_moment=self.state.adam.second_moment,
                best=self.best,
                warm_start=self.warm_start,
                center=self.normalisation.center,
                inverse_scale=self.normalisation.inverse_scale,
                record=np.frombuffer(json.dumps(self.record).encode(), np.uint8),
            )

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Reads the file.

        Raises:
          CheckpointError: damaged or of another version.
        """
        try:
            with np.load(path) as arrays:
                version = int(arrays["version"])
                if version != _VERSION:
                    raise CheckpointError(
                        f"{path}: version {version}, this program reads {_VERSION}; "
                        "remove the training's folder to start again"
                    )
                adam = Adam(int(arrays["steps"]), arrays["first_moment"], arrays["second_moment"])
                return cls(
                    state=State(arrays["mean"], adam),
                    best=arrays["best"],
                    warm_start=arrays["warm_start"],
                    normalisation=Normalisation(arrays["center"], arrays["inverse_scale"]),
                    record=json.loads(arrays["record"].tobytes()),
                )
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(
                f"{path}: damaged ({error}); remove it to start the training again"
            ) from error
