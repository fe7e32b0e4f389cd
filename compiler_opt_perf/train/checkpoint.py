# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The state of a training in a file, from which it goes on exactly where it stopped."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.arrays import (
    ArraysError,
    read_arrays,
    require_vector,
    write_arrays,
)
from compiler_opt_perf.policy.encoding import FloatArray, Normalisation
from compiler_opt_perf.policy.network import DecisionKind, Network
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import atomic_write
from compiler_opt_perf.run.json_text import (
    Count,
    Finite,
    JsonError,
    convert,
    decode,
    shown,
)
from compiler_opt_perf.train.algorithm import Arrays

# 4: the margin and the mask of the best policy, which labels choose.
_VERSION = 4
_NAMES = ("version", "best", "center", "inverse_scale", "record")
_STATE = "state."


class CheckpointError(UserError):
    """A checkpoint that cannot be read."""


def write_state(path: Path, record: Any, arrays: Arrays) -> None:
    """Writes arrays, and a record as JSON, atomically. Raises FileWriteError."""
    content = np.frombuffer(json.dumps(record, allow_nan=False).encode(), np.uint8)
    with atomic_write(path) as temporary:
        write_arrays(temporary, compressed=False, record=content, **arrays)


@contextlib.contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turns the errors of reading a damaged checkpoint into a CheckpointError with a remedy."""
    try:
        yield
    except (ArraysError, JsonError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise CheckpointError(
            f"{path}: damaged ({error}); remove it to start the training again"
        ) from error


@dataclass(frozen=True)
class Checkpoint:
    """The state after an iteration.

    Attributes:
      state: the state of the stage's algorithm.
      best: weights that cost least on the validation modules so far, and failed on none; not yet
        on the grid.
      normalisation: how the best policy's network scales its inputs.
      record: JSON-able: `stage` and `iteration`, the number of the stage from 0 and of its
        iterations done; `curve` (a record for each iteration of all stages, and for the start),
        `modules` (names, by purpose), `best_generation`, `best_change` and `start_change` (None
        before a policy compiles all validation modules), `margin` and `asked` of the best policy's
        network, counts of compilations and failures, `state` (names of the state's arrays) and,
        once the training has ended, `ended`.
    """

    state: Arrays
    best: FloatArray
    normalisation: Normalisation
    record: Mapping[str, Any]

    @property
    def stage(self) -> int:
        """The number of the stage, from 0."""
        return int(self.record["stage"])

    @property
    def iteration(self) -> int:
        """How many iterations of the stage are done."""
        return int(self.record["iteration"])

    @property
    def generation(self) -> int:
        """How many iterations of all stages are done."""
        return len(self.record["curve"]) - 1

    def network(self, problem: Problem, with_pmu: bool, hidden: tuple[int, ...]) -> Network:
        """The network of the best policy. Raises ValueError as Network does."""
        asked = self.record["asked"]
        if asked is not None:
            asked = convert(asked, tuple[DecisionKind, ...], "record: asked")
        margin = self.record["margin"]
        return Network(problem, with_pmu, hidden, self.normalisation, margin, asked)

    def with_best(self, network: Network, weights: npt.NDArray[Any], **facts: Any) -> Self:
        """The checkpoint with another best policy, and facts of it for the record."""
        own = {"margin": network.default_lead, "asked": msgspec.to_builtins(network.asked)}
        return dataclasses.replace(
            self,
            best=np.asarray(weights, np.float32),
            normalisation=network.normalisation,
            record={**self.record, **own, **facts},
        )

    def save(self, path: Path) -> None:
        """Writes the file, atomically. Raises FileWriteError."""
        arrays = {
            "version": np.array(_VERSION),
            "best": self.best,
            "center": self.normalisation.center,
            "inverse_scale": self.normalisation.inverse_scale,
            **{_STATE + name: array for name, array in self.state.items()},
        }
        write_state(path, {**self.record, "state": list(self.state)}, arrays)

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Reads the file.

        Raises:
          CheckpointError: damaged or of another version.
        """
        with damage(path):
            version = int(read_arrays(path, ["version"])["version"])
            if version != _VERSION:
                raise CheckpointError(
                    f"{path}: version {version}, this program reads {_VERSION}; "
                    "remove the training's folder to start again"
                )
            arrays = read_arrays(path, _NAMES)
            record = _read_record(arrays["record"].tobytes())
            names = record.pop("state")
            found = read_arrays(path, [_STATE + name for name in names])
            state = {name: found[_STATE + name] for name in names}
            for name, array in state.items():
                if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
                    raise ArraysError(f"{name} has values that are not finite numbers")
            size, features = arrays["best"].size, arrays["center"].size
            require_vector("weights", state["weights"], "float64", size)
            require_vector("best", arrays["best"], "float32", size)
            for name in ("center", "inverse_scale"):
                require_vector(name, arrays[name], "float32", features)
        return cls(
            state=state,
            best=arrays["best"],
            normalisation=Normalisation(arrays["center"], arrays["inverse_scale"]),
            record=record,
        )


class _Point(msgspec.Struct, frozen=True):
    generation: int
    elapsed_s: Finite
    stage: int
    compilations: Count


_Size = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
# Bytes of a program with the compiler's own policy and with the published one.
_Pair = tuple[_Size, _Size]


class _Ended(msgspec.Struct, frozen=True):
    budget_s: Finite
    compilations: Count
    test_change: Finite
    test_failed: tuple[str, ...]
    grid_loss: dict[str, Finite]
    programs: dict[str, tuple[_Pair, _Pair]] = {}


class _Record(msgspec.Struct, frozen=True):
    """The fields of the record that a training needs to go on."""

    best_change: Finite | None
    start_change: Finite | None
    best_generation: int
    compilations: Count
    failures: Count
    stage: Count
    iteration: Count
    state: tuple[str, ...]
    margin: Finite
    asked: tuple[DecisionKind, ...] | None
    curve: tuple[_Point, ...]
    modules: dict[str, Any]
    ended: _Ended | None = None


def _read_record(data: bytes) -> dict[str, Any]:
    """The record of a checkpoint. Raises JsonError."""
    record = decode(data, dict[str, Any], "record")
    read = convert(record, _Record, "record")
    generations = [point.generation for point in read.curve]
    if not generations or generations != list(range(len(generations))):
        raise JsonError(
            f"record: $.curve: expected generations from 0 on, found {shown(generations)}"
        )
    done = sum(point.stage == read.stage for point in read.curve[1:])
    if done != read.iteration:
        raise JsonError(
            f"record: $.iteration: expected {done}, as the curve has of stage {read.stage}, "
            f"found {read.iteration}"
        )
    if "weights" not in read.state:
        raise JsonError(f"record: $.state: expected weights, found {shown(list(read.state))}")
    return record
