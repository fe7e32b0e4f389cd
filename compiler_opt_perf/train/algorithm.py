# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface of training algorithms: settings, a state, and a step to the next state."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from compiler_opt_perf.policy.network import WEIGHT_LIMIT, Network
from compiler_opt_perf.train.env import TrainingEnv
from compiler_opt_perf.train.measure import Measurement

Vector = npt.NDArray[np.float64]
#: A state: arrays by name. With the number of the iteration, the next step depends on nothing else.
#: `weights` are the policy's, float64 [size].
Arrays = Mapping[str, npt.NDArray[Any]]
#: Names of arrays that grow are rows.GROUP.NAME; the arrays of a group have as many rows.
ROWS = "rows."

Count = Annotated[int, Meta(ge=1, le=10**9)]
Steps = Annotated[int, Meta(ge=0, le=10**7)]
Rate = Annotated[float, Meta(ge=0, le=10)]


class StageSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="algorithm"
):
    """The settings that all stages of a recipe have.

    Attributes:
      packages: besides numpy, those that the weights depend on.
    """

    packages: ClassVar[tuple[str, ...]] = ()

    iterations: Annotated[
        int, Meta(ge=0, le=10**6, description="of the stage; the policy is validated after each")
    ] = 1

    @property
    def algorithm(self) -> str:
        """The name in recipes."""
        return str(self.__struct_config__.tag)


@dataclass(frozen=True)
class Proposal:
    """A policy that an iteration proposes: a network and its weights [size]."""

    network: Network
    weights: npt.NDArray[Any]


@dataclass(frozen=True)
class Step:
    """The result of one iteration.

    Attributes:
      state: the next one.
      proposals: policies to validate, at least one; the cheapest of the whole training is
        published.
      facts: figures for the training curve.
    """

    state: Arrays
    proposals: tuple[Proposal, ...]
    facts: Mapping[str, float] = field(default_factory=dict)


S = TypeVar("S", bound=StageSettings)


class Algorithm(abc.ABC, Generic[S]):
    """One stage of a training.

    Attributes:
      settings: the stage's settings in the recipe.
      env: the compiler, and the modules to train on.
    """

    def __init__(self, settings: S, env: TrainingEnv):
        self.settings = settings
        self.env = env

    @abc.abstractmethod
    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """The state before the first iteration, with a policy's weights [size]."""

    @abc.abstractmethod
    def iterate(self, state: Arrays, number: int) -> Step:
        """One iteration, the first is 1; equal arguments give an equal step."""

    def validated(self, state: Arrays, measured: Sequence[Measurement]) -> Arrays:
        """The state, given what the step's proposals cost on the validation modules."""
        del measured
        return state

    def propose(self, *weights: npt.NDArray[Any]) -> tuple[Proposal, ...]:
        """Proposals with the stage's network."""
        return tuple(Proposal(self.env.network, one) for one in weights)


def limited(weights: Vector) -> Vector:
    """The nearest weights that the network admits, float64 [size]."""
    return np.clip(weights, -WEIGHT_LIMIT, WEIGHT_LIMIT)


def facts_of(measured: Sequence[Measurement]) -> dict[str, float]:
    """Figures of an iteration's candidates for the training curve."""
    changes = [one.change for one in measured]
    return {
        "candidates_mean": float(np.mean(changes)),
        "candidates_best": min(changes),
        "candidates_failed": sum(bool(one.failed) for one in measured),
    }


def require_like(state: Arrays, template: Arrays) -> None:
    """Raises ValueError if a state has other arrays than the one that its algorithm starts with."""
    if state.keys() != template.keys():
        raise ValueError(f"expected arrays {', '.join(template)}, found {', '.join(state)}")
    for name, array in state.items():
        like = template[name]
        first = 1 if name.startswith(ROWS) else 0
        same = array.dtype == like.dtype and array.ndim == like.ndim
        if not same or array.shape[first:] != like.shape[first:]:
            raise ValueError(
                f"{name} is {array.dtype} {list(array.shape)}, expected {like.dtype} "
                f"{list(like.shape)}"
            )
    groups: dict[str, int] = {}
    for name, array in state.items():
        if name.startswith(ROWS):
            group = name.split(".")[1]
            if groups.setdefault(group, len(array)) != len(array):
                raise ValueError(f"{name} has {len(array)} rows, others {groups[group]}")
