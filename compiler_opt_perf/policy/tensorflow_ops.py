# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of policy networks in TensorFlow, which differentiates them."""

from types import SimpleNamespace

from compiler_opt_perf.run.tensorflow_environment import import_tensorflow


def tensorflow_ops() -> SimpleNamespace:
    """The operations of `network.NUMPY_OPS` in TensorFlow."""
    tf = import_tensorflow()
    return SimpleNamespace(
        bits=lambda values: tf.bitcast(values, tf.int32),
        concat=tf.concat,
        matmul=tf.matmul,
        reshape=tf.reshape,
        stack=tf.stack,
        to_float=lambda values: tf.cast(values, tf.float32),
        transpose=tf.transpose,
        where=tf.where,
        zeros_like=tf.zeros_like,
    )
