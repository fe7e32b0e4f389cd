# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""TensorFlow as learned cost models use it: two threads, the same bytes each time."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.learned.config import Config
from compiler_opt_perf.learned.graphs import Graphs
from compiler_opt_perf.learned.networks import cycles, inputs_of, specs
from compiler_opt_perf.policies.export import import_tensorflow

_THREADS = 2
_AT_ONCE = 1024


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
    weights: Mapping[str, npt.NDArray[np.float32]],
    cpus: int,
    graphs: Graphs,
    blocks: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Predicted cycles of some blocks on each CPU, [blocks, cpus]; those of a length together."""
    tf = start_tensorflow()
    predict = _function(config, cpus, tuple((name, one.shape) for name, one in weights.items()))
    constants = {name: tf.constant(one) for name, one in weights.items()}
    found = np.zeros((len(blocks), cpus))
    order = np.argsort(graphs.lengths[blocks], kind="stable")
    for start in range(0, len(order), _AT_ONCE):
        part = order[start : start + _AT_ONCE]
        batch = {
            name: tf.constant(one)
            for name, one in inputs_of(graphs.take(blocks[part]), config).items()
        }
        found[part] = predict(constants, batch).numpy()
    return found
