# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adam (Kingma and Ba 2015), for gradients from anywhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Adam:
    """Running moments of the gradient, float64 [size] each, after `steps` steps."""

    steps: int
    first_moment: Vector
    second_moment: Vector

    @classmethod
    def start(cls, size: int) -> "Adam":
        """The moments before the first step: zeros."""
        return cls(0, np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, state: Mapping[str, npt.NDArray[Any]]) -> "Adam":
        """The moments in a state that has the arrays of `arrays`."""
        return cls(int(state["steps"]), state["first_moment"], state["second_moment"])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The moments as a part of a state."""
        return {
            "steps": np.array(self.steps, np.int64),
            "first_moment": self.first_moment,
            "second_moment": self.second_moment,
        }

    def step(self, gradient: Vector) -> tuple["Adam", Vector]:
        """The next moments, and the bias-corrected step direction m / (sqrt(v) + epsilon)."""
        steps = self.steps + 1
        first = BETA1 * self.first_moment + (1 - BETA1) * gradient
        second = BETA2 * self.second_moment + (1 - BETA2) * gradient**2
        m = first / (1 - BETA1**steps)
        v = second / (1 - BETA2**steps)
        return Adam(steps, first, second), m / (np.sqrt(v) + EPSILON)
