# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs of decisions that tell of other decisions: a control for what the inputs tell."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.seeds import derive_seed
from compiler_opt_perf.train.cost_sensitive import Inputs


def exchanged(
    inputs: Inputs, static: Sequence[str], groups: npt.NDArray[np.int64], seed: int
) -> Inputs:
    """The inputs, all but the static ones of another decision of the same program."""
    order = np.arange(len(groups))
    random = np.random.default_rng(derive_seed(seed, "exchanged"))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        order[rows] = random.permutation(rows)
    return {name: values if name in static else values[order] for name, values in inputs.items()}
