# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the training logs that LLVM writes in development mode.

The format is described in llvm/lib/Analysis/TrainingLogger.cpp: a JSON line with the tensors'
types, then for each decision a JSON line, the tensors' bytes and a newline; contexts (functions)
and rewards come in between as JSON lines and bytes of their own.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.policy.tensors import Tensor, record_type
from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import read_input
from compiler_opt_perf.run.json_text import JsonError, decode

_OBSERVATION = b'{"observation":'
_KEY = b',"key":'
_OUTCOME = b'{"outcome":'
_CONTEXT = b'{"context":'


_COMPILE_AGAIN = "compile the module again to get a complete log"

T = TypeVar("T")


class _Header(msgspec.Struct, frozen=True):
    features: Annotated[tuple[Tensor, ...], msgspec.Meta(min_length=1)]
    score: Tensor | None = None


class _Context(msgspec.Struct, frozen=True):
    context: str


class _Keyed(msgspec.Struct, frozen=True):
    key: str


class LogError(UserError):
    """A log that is damaged or of another problem; names file, byte offset and reason."""


@dataclass(frozen=True)
class TrainingLog:
    """The decisions of one compilation.

    Attributes:
      path: the file.
      content: its bytes.
      record: the structured type of one decision, with a field for each tensor, in the log's order.
      starts: int64 [decisions], where the decisions' bytes lie.
      keys: the keys of the decisions (docs/reference/features.md); empty when none were asked for.
      rewards: [decisions], or None when the log has none.
      contexts: names of the functions with at least one decision, in the log's order.
      context_of: int64 [decisions], index into `contexts`.
    """

    path: Path
    content: bytes
    record: np.dtype[np.void]
    starts: npt.NDArray[np.int64]
    keys: tuple[str, ...]
    rewards: npt.NDArray[Any] | None
    contexts: tuple[str, ...]
    context_of: npt.NDArray[np.int64]

    @functools.cached_property
    def observations(self) -> npt.NDArray[np.void]:
        """The decisions, [decisions] of type `record`; gathered when first asked for."""
        return _gather(self.content, self.starts, self.record)

    def select(self, rows: npt.NDArray[np.int64]) -> "TrainingLog":
        """A view of some of the decisions, without rewards; nothing is copied yet."""
        keys = tuple(self.keys[row] for row in rows) if self.keys else ()
        return dataclasses.replace(
            self,
            starts=self.starts[rows],
            keys=keys,
            rewards=None,
            context_of=self.context_of[rows],
        )

    def inputs(
        self, problem: Problem, with_pmu: bool, *, profiled: bool = True
    ) -> dict[str, npt.NDArray[Any]]:
        """The features as Network takes them: [rows], or [rows, columns].

        Args:
          with_pmu: the PMU features are among them.
          profiled: the module was compiled with a profile. Without one, the log has no PMU
            features; they are as the compiler gives them to a policy then.

        Raises:
          LogError: the log lacks a feature or has it with another type or shape.
        """
        result = {}
        for feature in problem.all_features(with_pmu and profiled):
            values = self._field(feature.name, feature.dtype, feature.shape)
            result[feature.name] = values[:, 0]
        if with_pmu and not profiled:
            result |= problem.unprofiled_inputs(len(self.starts))
        return result

    def decisions(self, problem: Problem) -> npt.NDArray[np.int64]:
        """The decisions taken, int64 [rows]. Raises LogError."""
        return self._field(problem.decision, "int64", (1,))[:, 0]

    def default_decisions(self, problem: Problem) -> npt.NDArray[np.int64]:
        """The decisions that the compiler's own policy would take, int64 [rows].

        If the problem has no tensor for them (`default_decision`), the decisions taken are
        returned; they are the default's only in a log written without a model. Raises LogError.
        """
        return self._field(problem.default_decision or problem.decision, "int64", (1,))[:, 0]

    def last_rewards(self) -> dict[str, float]:
        """The reward after each function's last decision, by function.

        LLVM gives 0 to all decisions but the last, which gets the function's score.

        Raises:
          LogError: the log has no rewards.
        """
        if self.rewards is None:
            raise LogError(f"{self.path}: has no rewards")
        last = {int(context): row for row, context in enumerate(self.context_of)}
        return {self.contexts[c]: float(self.rewards[row]) for c, row in last.items()}

    def _field(self, name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        fields: Mapping[str, Any] = self.record.fields or {}
        if name not in fields:
            hint = "; was the compiler given -pmu-profile?" if name.startswith("pmu_") else ""
            raise LogError(
                f"{self.path}: byte 0: the header has no tensor {name!r}{hint} "
                f"(it has {', '.join(fields) or 'none'})"
            )
        values = self.observations[name]
        if values.dtype != np.dtype(dtype) or values.shape[1:] != shape:
            raise LogError(
                f"{self.path}: byte 0: tensor {name!r} is {values.dtype} {values.shape[1:]}, "
                f"expected {dtype} {shape}"
            )
        return values


def read_log(path: Path) -> TrainingLog:
    """Reads one log.

    Raises:
      LogError: unreadable, empty, truncated or corrupt; names the byte offset.
    """
    try:
        content = read_input(path)
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}") from error
    return _Reader(path, content).read()


class _Reader:
    """One pass over the file that notes the records' offsets; numpy gathers them when needed."""

    def __init__(self, path: Path, content: bytes):
        self._path = path
        self._content = content
        self._at = 0

    def read(self) -> TrainingLog:
        if not self._content:
            raise self._error("empty; the compilation ended before its first decision")
        header = self._decode(self._line(), _Header, 0)
        observation_type = self._record(header.features)
        reward_type = self._record([header.score]) if header.score is not None else None

        observations: list[int] = []
        keys: list[str] = []
        outcomes: list[int] = []
        context_of: list[int] = []
        contexts: dict[str, int] = {}
        context: str | None = None
        while self._at < len(self._content):
            start = self._at
            line = self._line()
            if line.startswith(_OBSERVATION):
                self._check_outcomes(reward_type, observations, outcomes, start)
                if context is None:
                    raise self._error("an observation before any context", at=start)
                observations.append(self._skip(observation_type.itemsize))
                context_of.append(contexts.setdefault(context, len(contexts)))
                if _KEY in line:
                    keys.append(self._decode(line, _Keyed, start).key)
            elif line.startswith(_OUTCOME):
                if reward_type is None or len(outcomes) + 1 != len(observations):
                    raise self._error("an outcome without an observation", at=start)
                outcomes.append(self._skip(reward_type.itemsize))
            elif line.startswith(_CONTEXT):
                context = self._decode(line, _Context, start).context
            else:
                raise self._error(
                    f"expected an observation, outcome or context, found {line[:40]!r}", at=start
                )
        self._check_outcomes(reward_type, observations, outcomes, self._at)
        if keys and len(keys) != len(observations):
            raise self._error(f"{len(keys)} of {len(observations)} decisions have keys")
        rewards = None
        if header.score is not None and reward_type is not None:
            starts = np.array(outcomes, np.int64)
            rewards = _gather(self._content, starts, reward_type)[header.score.name].reshape(-1)
        return TrainingLog(
            path=self._path,
            content=self._content,
            record=observation_type,
            starts=np.array(observations, np.int64),
            keys=tuple(keys),
            rewards=rewards,
            contexts=tuple(contexts),
            context_of=np.array(context_of, np.int64),
        )

    def _line(self) -> bytes:
        end = self._content.find(b"\n", self._at)
        if end < 0:
            raise self._error("truncated in a line of JSON")
        line = self._content[self._at : end]
        self._at = end + 1
        return line

    def _skip(self, size: int) -> int:
        """Steps over the raw bytes of a record and its newline; returns where it starts."""
        start = self._at
        end = start + size
        if end + 1 > len(self._content):
            raise self._error(f"truncated: {len(self._content) - start} of {size + 1} bytes")
        if self._content[end] != 0x0A:
            raise self._error(f"the tensors of {size} bytes do not end in a newline", at=end)
        self._at = end + 1
        return start

    def _decode(self, line: bytes, kind: type[T], start: int) -> T:
        try:
            return decode(line, kind, f"{self._path}: byte {start}")
        except JsonError as error:
            raise LogError(f"{error}; {_COMPILE_AGAIN}") from error

    def _record(self, tensors: Sequence[Tensor]) -> np.dtype[np.void]:
        try:
            return record_type(tensors)
        except ValueError as error:
            raise self._error(f"{error} in the header", at=0) from error

    def _check_outcomes(
        self, reward_type: Any, observations: list[int], outcomes: list[int], at: int
    ) -> None:
        if reward_type is not None and len(observations) != len(outcomes):
            raise self._error("the observation before has no outcome", at=at)

    def _error(self, reason: str, at: int | None = None) -> LogError:
        offset = self._at if at is None else at
        return LogError(f"{self._path}: byte {offset}: {reason}; {_COMPILE_AGAIN}")


def _gather(
    content: bytes, starts: npt.NDArray[np.int64], record: np.dtype[np.void]
) -> npt.NDArray[np.void]:
    if starts.size == 0:
        return np.empty(0, record)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.frombuffer(content, np.uint8), record.itemsize
    )
    return windows[starts].view(record)[:, 0]
