# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adam (Kingma and Ba 2015), for gradients from anywhere."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


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

    def step(self, gradient: Vector) -> tuple["Adam", Vector]:
        """The next moments, and the bias-corrected step direction m / (sqrt(v) + epsilon)."""
        steps = self.steps + 1
        first = _BETA1 * self.first_moment + (1 - _BETA1) * gradient
        second = _BETA2 * self.second_moment + (1 - _BETA2) * gradient**2
        m = first / (1 - _BETA1**steps)
        v = second / (1 - _BETA2**steps)
        return Adam(steps, first, second), m / (np.sqrt(v) + _EPSILON)
