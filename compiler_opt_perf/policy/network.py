# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The policy networks: small multi-layer perceptrons whose decisions are the same everywhere.

One policy runs in four places: in numpy here, in TensorFlow while it is trained, in LiteRT inside
the compiler's development mode and, compiled ahead of time by XLA, inside its release mode. These
add up a float32 dot product in different orders, which changes its last bits, and one decision
that flips on a near tie changes all that follow it in the same function. So every number in the
network is a multiple of 2**-8 and limited in size such that every product and every partial sum is
exactly representable in float32: the order of additions and fused multiply-adds then do not matter,
and the four agree bit for bit.

  - activations lie in [-4, 4] and weights and biases in [-1, 1], both on a grid of 2**-8, so that
    products are multiples of 2**-16;
  - a layer has at most 62 inputs, so that sums stay below 2**8 = 2**24 * 2**-16, the point up to
    which a float32 holds every multiple of 2**-16;
  - the logarithm that compresses the features is read off the float's bits (piecewise linear
    between powers of two), because library logarithms differ in the last bit;
  - factors are powers of two, so that a multiplication and an addition may be fused.

What runs in the compiler's release mode is made of operations that are a vector instruction each on
every x86-64: numbers are rounded to the grid by adding and subtracting a large one, and limited by
selections, because maximum, minimum and conversions to integers mind NaN.
"""

import functools
import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.encoding import (
    GRID,
    NUMPY_OPS,
    Encoding,
    FloatArray,
    Normalisation,
    Tensor,
    rectified,
    scored_features,
    stack,
)
from compiler_opt_perf.policy.problem import Feature, Problem

IntArray = npt.NDArray[np.int64]
#: (matrix [inputs, outputs], bias [outputs]) a layer.
Layers = list[tuple[Tensor, Tensor]]

WEIGHT_LIMIT = 1.0
MAX_LAYER_INPUTS = 62
# 62 products of up to 4, a bias and this stay below 2**8.
MAX_DEFAULT_LEAD = 4.0
# Below any score that the limits above permit.
MASKED_SCORE = -512.0
# The lead of the compiler's own decision where the perceptron is not asked: above any difference
# of two scores. The sum may be rounded, as it is only compared.
_UNASKED_LEAD = 1024.0


def to_grid(weights: npt.NDArray[Any]) -> FloatArray:
    """The nearest weights that the compiler can use; float32, same shape."""
    limited = np.clip(weights, -WEIGHT_LIMIT, WEIGHT_LIMIT)
    return np.asarray(np.rint(limited / GRID) * GRID, dtype=np.float32)


class DecisionKind(msgspec.Struct, frozen=True):
    """A kind of inlining decisions, which compilers tell without the costly features.

    What holds for a template or an inline function, which is there because it is meant to be
    inlined, need not hold for a static function of C, nor what holds for that in C++.

    Attributes:
      inlining_default: whether the compiler inlines, 0 or 1.
      callee_is_comdat: whether the callee is in a COMDAT, 0 or 1.
      callee_is_mangled: whether the callee's name is mangled as C++ mangles it, 0 or 1.
    """

    inlining_default: Literal[0, 1]
    callee_is_comdat: Literal[0, 1]
    callee_is_mangled: Literal[0, 1]

    def holds(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Whether each decision is of this kind; bool, in the inputs' shape."""
        return functools.reduce(
            operator.and_, (inputs[name] == getattr(self, name) for name in self.__struct_fields__)
        )


@dataclass(frozen=True)
class Network:
    """Shape of a policy: which inputs it reads and how wide its layers are; the weights are apart.

    The weights are one flat float32 vector [size]: layer by layer the matrix [inputs, outputs] in
    row order, then the bias [outputs]. Where a decision is among candidates, one perceptron scores
    every column, so that permuted registers give the permuted decision, and the admissible column
    with the highest score is chosen; elsewhere the last layer has one score a decision. Among equal
    scores the lowest index wins.

    Attributes:
      problem: what is decided.
      with_pmu: whether the PMU features are inputs.
      hidden: widths of the hidden layers.
      normalisation: of `scored_features`, from the training modules' decisions.
      default_lead: what is added to the score of the compiler's own decision: the perceptron says
        what to do otherwise and how sure it is. A multiple of 2**-8 up to 4; with one above 0, a
        network whose last layer is zero decides as the compiler does.
      asked: the kinds of decisions that the perceptron is asked about; the others are the
        compiler's own, and release mode computes nothing for them. None: all. A training that
        begins with the policy asks about all.

    Raises:
      ValueError: a layer too wide for exact sums, or without width, or another lead; kinds of
        another problem's decisions.
    """

    problem: Problem
    with_pmu: bool
    hidden: tuple[int, ...]
    normalisation: Normalisation
    default_lead: float = 0.0
    asked: tuple[DecisionKind, ...] | None = None

    def __post_init__(self) -> None:
        names = {feature.name for feature in self.problem.features}
        if self.asked is not None and not names.issuperset(DecisionKind.__struct_fields__):
            raise ValueError(f"kinds of decisions, which {self.problem.name} does not have")
        if not 0 <= self.default_lead <= MAX_DEFAULT_LEAD or self.default_lead % GRID:
            raise ValueError(
                f"a default lead of {self.default_lead}: expected a multiple of 2**-8 from 0 to "
                f"{MAX_DEFAULT_LEAD:g}"
            )
        narrowest, widest = min(self.layer_widths), max(self.layer_widths[:-1])
        if narrowest < 1:
            raise ValueError(f"a layer with {narrowest} inputs: expected 1 to {MAX_LAYER_INPUTS}")
        if widest > MAX_LAYER_INPUTS:
            raise ValueError(
                f"a layer with {widest} inputs: float32 sums are exact up to {MAX_LAYER_INPUTS}; "
                "make the hidden layers narrower"
            )

    @functools.cached_property
    def features(self) -> tuple[Feature, ...]:
        """The tensors that it takes, in the compiler's order."""
        return self.problem.inputs(self.with_pmu)

    @functools.cached_property
    def layer_widths(self) -> tuple[int, ...]:
        """Widths of the input, the hidden layers and the output."""
        inputs = len(self.scored)
        if self.problem.mask is None:
            return (inputs, *self.hidden, self.problem.decisions)
        return (inputs + 1, *self.hidden, 1)

    # What depends on the features alone is made once: interactive mode asks for one row at a time.

    @functools.cached_property
    def scored(self) -> tuple[Feature, ...]:
        """The features that enter the perceptron, in the compiler's order."""
        return scored_features(self.problem, self.with_pmu)

    @functools.cached_property
    def encoding(self) -> Encoding:
        """What encodes `scored`."""
        return Encoding.of(self.scored, self.normalisation)

    @functools.cached_property
    def size(self) -> int:
        """Number of weights."""
        return sum((a + 1) * b for a, b in itertools.pairwise(self.layer_widths))

    def initial_weights(self, seed: int) -> FloatArray:
        """Random weights of variance 2 / inputs (He et al. 2015), zero biases; float32 [size].

        With a `default_lead`, the last layer is zero.
        """
        random = np.random.default_rng(seed)
        parts = []
        for inputs, outputs in itertools.pairwise(self.layer_widths):
            parts.append(random.normal(0.0, np.sqrt(2.0 / inputs), inputs * outputs))
            parts.append(np.zeros(outputs))
        if self.default_lead:
            # Until it is trained, it decides as the compiler does.
            parts[-2][:] = 0.0
        return to_grid(np.concatenate(parts).astype(np.float32))

    def layers(self, weights: Tensor, ops: Any = NUMPY_OPS) -> Layers:
        """Cuts a flat vector [size] into its layers."""
        layers = []
        start = 0
        for inputs, outputs in itertools.pairwise(self.layer_widths):
            middle = start + inputs * outputs
            end = middle + outputs
            matrix = ops.reshape(weights[start:middle], (inputs, outputs))
            layers.append((matrix, weights[middle:end]))
            start = end
        return layers

    def encode(self, inputs: Mapping[str, Tensor], ops: Any = NUMPY_OPS) -> Tensor:
        """Normalised features.

        Args:
          inputs: by feature name; [rows] for scalars, [rows, columns] for the others, in the
            feature's dtype.

        Returns:
          float32 [rows, layer_widths[0], columns]; one column where a decision is not among
          candidates. Columns come last, so that every feature is a row of contiguous numbers,
          which XLA turns into vector instructions without branches.
        """
        values = stack(inputs, self.scored, self.problem.mask, ops)
        encoded = self.encoding.encode(values, ops)
        if self.problem.mask is not None:
            is_idle = np.zeros(self.problem.decisions, np.float32)
            is_idle[self.problem.idle_decision] = 1.0
            idle = ops.zeros_like(ops.to_float(inputs[self.problem.mask])) + is_idle
            encoded = ops.concat([encoded, ops.reshape(idle, (-1, 1, len(is_idle)))], 1)
        return encoded

    def scores(self, layers: Layers, encoded: Tensor, ops: Any = NUMPY_OPS) -> Tensor:
        """Scores of the decisions, float32 [rows, decisions], as if every one were admissible."""
        # Activations are [width, rows * columns], for the same reason as `encoded`. The weights are
        # on the right, where LiteRT wants constants; XLA turns the products round and drops the
        # transpositions.
        activation = ops.transpose(encoded, (1, 0, 2))
        activation = ops.reshape(activation, (self.layer_widths[0], -1))
        for matrix, bias in layers[:-1]:
            sums = ops.matmul(ops.transpose(activation), matrix) + bias
            activation = rectified(ops.transpose(sums), ops)
        matrix, bias = layers[-1]
        scores = ops.matmul(ops.transpose(activation), matrix) + bias
        return ops.reshape(scores, (-1, self.problem.decisions))

    def masked_scores(
        self, layers: Layers, inputs: Mapping[str, Tensor], ops: Any = NUMPY_OPS
    ) -> Tensor:
        """`scores` of raw inputs, with MASKED_SCORE where a candidate is not admissible."""
        scores = self.scores(layers, self.encode(inputs, ops), ops)
        lead = self.default_lead
        if self.asked is not None:
            lead = ops.where(self._is_asked(inputs, ops), lead, _UNASKED_LEAD)
        if self.default_lead or self.asked is not None:
            scores = scores + lead * self.is_default(inputs, ops)
        if self.problem.mask is None:
            return scores
        return ops.where(inputs[self.problem.mask] > 0, scores, MASKED_SCORE)

    def _is_asked(self, inputs: Mapping[str, Tensor], ops: Any) -> Tensor:
        """Whether the perceptron is asked, bool [rows, 1]."""
        asked = ops.zeros_like(inputs["callee_is_comdat"]) > 0
        for kind in self.asked or ():
            asked = asked | kind.holds(inputs)
        return ops.reshape(asked, (-1, 1))

    def is_default(self, inputs: Mapping[str, Tensor], ops: Any = NUMPY_OPS) -> Tensor:
        """1 for the compiler's own decision, else 0; float32 [rows, decisions]."""
        default = ops.to_float(inputs[self.problem.default_feature])
        if self.problem.mask is not None:
            return default
        return ops.stack([1.0 - ops.reshape(default, (-1,)), ops.reshape(default, (-1,))], 1)

    def decide(self, weights: FloatArray, inputs: Mapping[str, npt.NDArray[Any]]) -> IntArray:
        """Decisions, int64 [rows], for weights [size] and inputs as in `encode`."""
        scores = self.masked_scores(self.layers(weights), inputs)
        return np.asarray(np.argmax(scores, axis=-1), dtype=np.int64)
