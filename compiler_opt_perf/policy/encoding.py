# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encodes the compiler's features as the numbers that enter a policy's perceptron.

A feature enters as a signed logarithm, shifted and scaled by the statistics of the training
modules' decisions. `network` explains why all numbers lie on a grid, and why the logarithm is read
off a float's bits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.problem import Feature, Problem

FloatArray = npt.NDArray[np.float32]
#: An array of numpy or a tensor of TensorFlow or `tflite_ops`: one forward pass serves them all.
Tensor = Any

GRID = 2.0**-8
ACTIVATION_LIMIT = 4.0
#: float32 numbers around this one are GRID apart: adding it rounds to the grid.
ROUNDING = 1.5 * 2**23 * GRID
#: What a missing value counts as, whatever the feature's scale: 1 - 0.75 is a power of two, and its
#: logarithm, -2, is below those of all known values, which are 0 or more.
MISSING_MAGNITUDE = -0.75
#: The bits of 1.0 as a float32.
BITS_OF_ONE = 0x3F800000
_LARGEST_MAGNITUDE = 65535.0
_LOWEST_FLOAT = float(np.finfo(np.float32).min)

#: The forward pass's operations. `tensorflow_ops` has the same ones of TensorFlow, and
#: `tflite_ops` records them.
NUMPY_OPS = SimpleNamespace(
    bits=lambda values: np.ascontiguousarray(values).view(np.int32),
    concat=np.concatenate,
    matmul=np.matmul,
    reshape=np.reshape,
    stack=np.stack,
    to_float=lambda values: np.asarray(values, dtype=np.float32),
    transpose=np.transpose,
    where=lambda condition, a, b: np.where(condition, np.float32(a), np.float32(b)),
    zeros_like=np.zeros_like,
)


@dataclass(frozen=True)
class Normalisation:
    """Brings the logarithms of the features to about zero mean and unit spread.

    Attributes:
      center: float32 [features], on the grid.
      inverse_scale: float32 [features], powers of two.
    """

    center: FloatArray
    inverse_scale: FloatArray


@dataclass(frozen=True)
class Ranges:
    """The values that features can have; float32 [features, 1] each.

    Attributes:
      unit_scale: the factor before the logarithm.
      largest: the largest scaled value.
      negative_below: below this, a value's logarithm is negated; None if no feature is signed.
      missing_below: below this, a value is missing.
    """

    unit_scale: FloatArray
    largest: FloatArray
    negative_below: FloatArray | None
    missing_below: FloatArray

    @classmethod
    def of(cls, features: Sequence[Feature]) -> "Ranges":
        def column(numbers: Iterable[float]) -> FloatArray:
            return np.array(list(numbers), np.float32)[:, None]

        is_signed = any(f.signed for f in features)
        return cls(
            unit_scale=column(f.unit_scale for f in features),
            largest=column(min(f.unit_scale * f.largest, _LARGEST_MAGNITUDE) for f in features),
            negative_below=(
                column(0.0 if f.signed else _LOWEST_FLOAT for f in features) if is_signed else None
            ),
            missing_below=column(0.0 if f.may_be_missing else -np.inf for f in features),
        )

    def compress(self, values: Tensor, ops: Any) -> Tensor:
        """As `compress`."""
        magnitude = values * self.unit_scale
        negative = None if self.negative_below is None else values < self.negative_below
        if negative is not None:
            magnitude = ops.where(negative, -magnitude, magnitude)
        magnitude = _at_most(magnitude, self.largest, ops)
        # A missing value is -1; scaled, it would be anything from 1/16 to 16384 below zero.
        magnitude = ops.where(values < self.missing_below, MISSING_MAGNITUDE, magnitude)
        magnitude = _at_least(magnitude, MISSING_MAGNITUDE, ops)
        logarithm = ops.to_float(ops.bits(magnitude + 1.0) - BITS_OF_ONE) * 2.0**-23
        return logarithm if negative is None else ops.where(negative, -logarithm, logarithm)


@dataclass(frozen=True)
class Encoding:
    """What encodes a network's features.

    Attributes:
      ranges: of the features.
      factor: of each logarithm, a power of two; float32 [features, 1].
      summand: ROUNDING less the scaled centre; float32 [features, 1].
    """

    ranges: Ranges
    factor: FloatArray
    summand: FloatArray

    @classmethod
    def of(cls, features: Sequence[Feature], normalisation: Normalisation) -> "Encoding":
        factor = normalisation.inverse_scale[:, None]
        return cls(Ranges.of(features), factor, ROUNDING - normalisation.center[:, None] * factor)

    def encode(self, values: Tensor, ops: Any) -> Tensor:
        """The activations, float32 in the shape of `values` [..., features, columns]."""
        compressed = self.ranges.compress(values, ops)
        return _limited_to_grid(compressed * self.factor + self.summand, -ACTIVATION_LIMIT, ops)


def scored_features(problem: Problem, with_pmu: bool) -> tuple[Feature, ...]:
    """The features that enter the perceptron: all but the mask."""
    return tuple(f for f in problem.inputs(with_pmu) if f.name != problem.mask)


def stack(
    inputs: Mapping[str, Tensor], features: Sequence[Feature], mask: str | None, ops: Any
) -> Tensor:
    """The features as float32 [rows, features, columns]; one column if there is no mask.

    A scalar is repeated for every column.
    """
    values = [
        ops.reshape(ops.to_float(inputs[feature.name]), (-1, feature.shape[-1]))
        for feature in features
    ]
    if mask is not None:
        columns = ops.zeros_like(ops.to_float(inputs[mask]))
        values = [
            value + columns if feature.shape == (1,) else value
            for feature, value in zip(features, values, strict=True)
        ]
    return ops.stack(values, 1)


def compress(values: Tensor, features: Sequence[Feature], ops: Any = NUMPY_OPS) -> Tensor:
    """Signed logarithm of each feature: sign(x) * log2(1 + unit_scale * |x|), at most 16.

    The logarithm is linear between powers of two: exponent and mantissa of the float's own bits.
    A missing value has -2, a known zero 0.

    Args:
      values: float32 [..., features, columns].
    """
    return Ranges.of(features).compress(values, ops)


def compress_one(feature: Feature, value: float) -> float:
    """The logarithm that networks see of one value of a feature; as `compress`."""
    return float(compress(np.array([[[value]]], np.float32), (feature,))[0, 0, 0])


def _at_most(values: Tensor, limit: Any, ops: Any) -> Tensor:
    # NaN becomes the limit.
    return ops.where(values < limit, values, limit)


def _at_least(values: Tensor, limit: Any, ops: Any) -> Tensor:
    return ops.where(values > limit, values, limit)


def rectified(sums: Tensor, ops: Any = NUMPY_OPS) -> Tensor:
    """The activations of a layer with these sums: rounded to the grid, from 0 to the limit."""
    # Limited before it is raised: where there is one column, TensorFlow's converter would add
    # ROUNDING to the bias, which rounds the bias and not the sums.
    return _limited_to_grid(_at_least(sums, 0.0, ops) + ROUNDING, 0.0, ops)


def _limited_to_grid(raised: Tensor, lowest: float, ops: Any) -> Tensor:
    """Subtracts ROUNDING, whose addition has rounded the values to the grid, and limits them."""
    raised = _at_most(raised, ROUNDING + ACTIVATION_LIMIT, ops)
    return _at_least(raised, ROUNDING + lowest, ops) - ROUNDING


def fit_normalisation(
    inputs: Mapping[str, npt.NDArray[Any]], problem: Problem, with_pmu: bool
) -> Normalisation:
    """Statistics over the rows of `inputs`, admissible columns only."""
    features = scored_features(problem, with_pmu)
    compressed = compress(stack(inputs, features, problem.mask, NUMPY_OPS), features)
    admissible = np.ones((len(compressed), 1), bool)
    if problem.mask is not None:
        admissible = inputs[problem.mask] > 0
    compressed = np.moveaxis(compressed, 1, -1)[admissible]
    center = np.zeros(len(features), np.float32)
    inverse_scale = np.ones(len(features), np.float32)
    for index, feature in enumerate(features):
        column = compressed[:, index]
        if column.size == 0:
            continue
        center[index] = np.rint(column.mean(dtype=np.float64) / GRID) * GRID
        deviation = column.std(dtype=np.float64)
        # A feature that hardly varies keeps its scale: magnified, its rare values would dominate.
        exponent = np.clip(np.rint(np.log2(max(deviation, 0.25))), -2, 3)
        inverse_scale[index] = 2.0**-exponent
        if feature.may_be_missing:
            # -2 and 0 must stay within the limits, so that a missing value differs from a zero.
            inverse_scale[index] = 2.0**-2
            center[index] = min(center[index], ACTIVATION_LIMIT * 2.0**2 - 2.0)
    return Normalisation(center, inverse_scale)
