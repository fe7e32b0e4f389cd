# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predictions of learned cost models; TensorFlow as they use it, the same bytes each time."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from compiler_opt_perf.learned.config import Config, Granite
from compiler_opt_perf.learned.graph_network import graph_cycles
from compiler_opt_perf.learned.graphs import Batch, Floats, Graphs
from compiler_opt_perf.learned.networks import cycles, inputs_of, specs
from compiler_opt_perf.policies.export import import_tensorflow

_THREADS = 2
_AT_ONCE = 1024
# What numpy computes of so few blocks stays in the cache.
_FEW_AT_ONCE = 128


@functools.cache
def start_tensorflow() -> Any:
    """TensorFlow with its threads limited, where that is still possible."""
    tf = import_tensorflow()
    try:
        tf.config.threading.set_intra_op_parallelism_threads(_THREADS)
        tf.config.threading.set_inter_op_parallelism_threads(_THREADS)
    except RuntimeError:
        # It has computed something already.
        pass
    tf.config.experimental.enable_op_determinism()
    return tf


@functools.lru_cache(maxsize=4)
def _function(config: Config, cpus: int, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Any:
    tf = start_tensorflow()
    weights = {name: tf.TensorSpec(shape, tf.float32) for name, shape in shapes}

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[weights, specs(config, tf)]
    )
    def predict(weights: Any, inputs: Any) -> Any:
        return cycles(config, weights, inputs, cpus, tf)

    return predict


def predictions(
    config: Config,
    weights: Mapping[str, Floats],
    cpus: int,
    graphs: Graphs,
    blocks: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Predicted cycles of some blocks on each CPU, [blocks, cpus]; those of a length together.

    TensorFlow is started for a network of sequences alone.
    """
    found = np.zeros((len(blocks), cpus))
    order = np.argsort(graphs.lengths[blocks], kind="stable")
    network = config.network
    if isinstance(network, Granite):
        at_once = _FEW_AT_ONCE
        compute: Callable[[Batch], Floats] = functools.partial(graph_cycles, network, weights, cpus)
    else:
        at_once = _AT_ONCE
        compute = _by_tensorflow(config, weights, cpus)
    # A second thread would only wait for the first: the matrices are small.
    with threadpool_limits(1, "blas"):
        for start in range(0, len(order), at_once):
            part = order[start : start + at_once]
            found[part] = compute(graphs.take(blocks[part]))
    return found


def _by_tensorflow(
    config: Config, weights: Mapping[str, Floats], cpus: int
) -> Callable[[Batch], Floats]:
    """What computes the cycles of a batch."""
    tf = start_tensorflow()
    predict = _function(config, cpus, tuple((name, one.shape) for name, one in weights.items()))
    constants = {name: tf.constant(one) for name, one in weights.items()}

    def compute(batch: Batch) -> Floats:
        inputs = {name: tf.constant(one) for name, one in inputs_of(batch, config).items()}
        found: Floats = predict(constants, inputs).numpy()
        return found

    return compute
