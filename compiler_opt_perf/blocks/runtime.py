# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs learned cost models, in numpy and in deterministic TensorFlow."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from compiler_opt_perf.blocks.config import CostModelConfig
from compiler_opt_perf.blocks.graph_network import graph_cycles
from compiler_opt_perf.blocks.graphs import Floats, Graphs
from compiler_opt_perf.run.tensorflow_environment import import_tensorflow

_THREADS = 2
# The arrays for this many blocks fit the cache.
_AT_ONCE = 128


@functools.cache
def start_tensorflow() -> Any:
    """Imports TensorFlow, deterministic and with few threads if it has not started yet."""
    tf = import_tensorflow()
    try:
        tf.config.threading.set_intra_op_parallelism_threads(_THREADS)
        tf.config.threading.set_inter_op_parallelism_threads(_THREADS)
    except RuntimeError:
        # TensorFlow has started already.
        pass
    tf.config.experimental.enable_op_determinism()
    return tf


def predictions(
    config: CostModelConfig,
    weights: Mapping[str, Floats],
    cpus: int,
    graphs: Graphs,
    blocks: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Predicts cycles of blocks in numpy, float64 [blocks, cpus].

    Blocks of similar length share a batch.
    """
    found = np.zeros((len(blocks), cpus))
    order = np.argsort(graphs.lengths[blocks], kind="stable")
    # A second thread would only wait for the first: the matrices are small.
    with threadpool_limits(1, "blas"):
        for start in range(0, len(order), _AT_ONCE):
            part = order[start : start + _AT_ONCE]
            found[part] = graph_cycles(config.network, weights, cpus, graphs.take(blocks[part]))
    return found
