# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The width of bootstrap intervals of a mean of few values."""

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

Floats = npt.NDArray[np.float64]

_LEVEL = 0.95


def widening(number: int) -> float:
    """The factor by which bootstrap draws of a mean of `number` values vary too little.

    Draws with replacement of n values have (n - 1) / n of the variance. The variance of few values
    is itself uncertain, so Student's distribution takes the place of the normal one.
    """
    tail = (1 + _LEVEL) / 2
    student = stdtrit(number - 1, tail) / ndtri(tail)
    return float(student * (number / (number - 1)) ** 0.5)
