# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every algorithm of a training is: a state, and a step from one state to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
#: A state: arrays by name, all that the next iteration depends on besides its number. `weights`
#: are those of the policy, float64 [size].
Arrays = Mapping[str, npt.NDArray[Any]]
#: Names of arrays that grow are rows.GROUP.NAME; those of a group have as many rows.
ROWS = "rows."


@dataclass(frozen=True)
class Step:
    """The result of one iteration.

    Attributes:
      state: the next one.
      policies: weights [size] to validate; the first are those that the next iteration goes on
        from.
      facts: for the training curve.
    """

    state: Arrays
    policies: tuple[npt.NDArray[Any], ...]
    facts: Mapping[str, float] = field(default_factory=dict)


class Algorithm(Protocol):
    """One stage of a training."""

    def start(self, weights: npt.NDArray[Any]) -> Arrays:
        """The state before the first iteration, with a policy's weights [size]."""

    def iterate(self, state: Arrays, number: int) -> Step:
        """One iteration, the first is 1; equal arguments give an equal step."""


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


def draw(shares: Sequence[float], count: int, seed: int) -> list[int]:
    """Tasks for an iteration, all of whose candidates see the same ones (common random numbers).

    Args:
      shares: for each task the probability, in (0, 1], that it is used when it is drawn. If none
        of the drawn tasks would be used, the one with the largest share is.
      count: how many are drawn.

    Returns:
      The indices of those that are used, ascending.
    """
    random = np.random.default_rng(seed)
    drawn = sorted(random.choice(len(shares), min(count, len(shares)), replace=False).tolist())
    used = [i for i in drawn if random.random() < shares[i]]
    return used or [max(drawn, key=lambda i: shares[i])]
