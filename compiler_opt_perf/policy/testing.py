# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs and networks for tests of what uses policies."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.network import FloatArray, Network, fit_normalisation
from compiler_opt_perf.policy.problem import Problem
from compiler_opt_perf.policy.tensorflow_ops import tensorflow_ops
from compiler_opt_perf.run.tensorflow_environment import import_tensorflow


def random_inputs(problem: Problem, rows: int, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Rows with the peculiarities of real ones: heavy tails, negative costs, NaN, missing data.

    Returns:
      By feature name, [rows] or [rows, columns], in the feature's dtype.
    """
    random = np.random.default_rng(seed)
    inputs: dict[str, npt.NDArray[Any]] = {}
    for feature in problem.inputs(with_pmu=True):
        shape = (rows, *feature.shape[1:])
        if feature.dtype == "int64":
            values = np.rint(random.standard_cauchy(shape) * 20).astype(np.int64)
            if feature.may_be_missing:
                values = np.abs(values)
        else:
            values = random.random(shape, dtype=np.float32) ** 3
            values[random.random(shape) < 0.02] = np.nan
        if feature.may_be_missing:
            values[random.random(shape) < 0.3] = -1
        inputs[feature.name] = values
    inputs[problem.default_feature] = random.integers(0, problem.decisions, rows)
    if problem.mask is not None:
        mask = random.random((rows, problem.decisions)) < 0.4
        mask[np.arange(rows), random.integers(0, problem.decisions, rows)] = True
        inputs[problem.mask] = mask.astype(np.int64)
        default = np.argmax(random.random(mask.shape) * mask, axis=1)
        inputs[problem.default_feature] = np.eye(problem.decisions, dtype=np.float32)[default]
    return inputs


def random_network(problem: Problem, hidden: tuple[int, ...] = (16, 8)) -> Network:
    """A network normalised for `random_inputs`."""
    inputs = random_inputs(problem, rows=200, seed=1)
    return Network(problem, True, hidden, fit_normalisation(inputs, problem, with_pmu=True))


def save_saved_model(folder: Path, network: Network, weights: FloatArray) -> None:
    """Writes the policy as another author would: a SavedModel with the signature `action`.

    TensorFlow names the inputs `action_<feature>`, for which the compiler looks.

    Args:
      weights: float32 [network.size].
    """
    tf = import_tensorflow()
    ops = tensorflow_ops()
    module = tf.Module()
    module.layers = [
        (tf.Variable(matrix), tf.Variable(bias)) for matrix, bias in network.layers(weights)
    ]

    def action(inputs: Any) -> Any:
        scores = network.masked_scores(module.layers, inputs, ops)
        return {network.problem.decision: tf.argmax(scores, axis=-1, output_type=tf.int64)}

    specs = {f.name: tf.TensorSpec(f.shape, f.dtype, f.name) for f in network.features}
    module.action = tf.function(action)
    signatures = {"action": module.action.get_concrete_function(specs)}
    tf.saved_model.save(module, str(folder), signatures=signatures)


def convert_to_tflite(saved_model: Path) -> bytes:
    """Another author's SavedModel with the signature `action` as TFLite's built-in operations."""
    tf = import_tensorflow()
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), ["action"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    return bytes(converter.convert())
