# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of policy networks, recorded as a graph of TFLite's built-in operations.

`Network.masked_scores` is called once with the tensors of this module, which record operations
instead of computing numbers. The graph has rows of one decision.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.policy.encoding import NUMPY_OPS


class GraphTensor:
    """A tensor of the graph: an input, a constant, or the result of an operation.

    Arithmetic, comparisons and `&`, `|` record an operation and return its result.

    Attributes:
      operation: TFLite's name of the operation; "" for inputs and constants.
      operands: what the operation is applied to.
      shape: sizes of the dimensions.
      dtype: element type.
      options: fields of the operation's options in TFLite's schema, by name.
      value: a constant's elements, [*shape]; None for other tensors.
    """

    #: Leaves operators between a numpy array and a tensor to this class.
    __array_ufunc__ = None

    def __init__(
        self,
        operation: str,
        operands: Sequence["GraphTensor"],
        shape: Sequence[int],
        dtype: Any,
        value: npt.NDArray[Any] | None = None,
        **options: int,
    ) -> None:
        self.operation = operation
        self.operands = tuple(operands)
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.options = options
        self.value = value

    def __add__(self, other: Any) -> "GraphTensor":
        if self.operation == "FULLY_CONNECTED" and len(self.operands) == 2 and _is_constant(other):
            # A layer's bias.
            operands = (*self.operands, other)
            return GraphTensor(self.operation, operands, self.shape, self.dtype)
        return _elementwise("ADD", self, other)

    def __radd__(self, other: Any) -> "GraphTensor":
        return _elementwise("ADD", other, self)

    def __sub__(self, other: Any) -> "GraphTensor":
        return _elementwise("SUB", self, other)

    def __rsub__(self, other: Any) -> "GraphTensor":
        return _elementwise("SUB", other, self)

    def __mul__(self, other: Any) -> "GraphTensor":
        if not isinstance(other, GraphTensor) and np.all(np.equal(other, 1)):
            return self
        return _elementwise("MUL", self, other)

    def __rmul__(self, other: Any) -> "GraphTensor":
        return self.__mul__(other)

    def __neg__(self) -> "GraphTensor":
        return _elementwise("NEG", self)

    def __lt__(self, other: Any) -> "GraphTensor":
        return _elementwise("LESS", self, other, dtype=bool)

    def __gt__(self, other: Any) -> "GraphTensor":
        return _elementwise("GREATER", self, other, dtype=bool)

    def __eq__(self, other: Any) -> "GraphTensor":  # type: ignore[override]
        return _elementwise("EQUAL", self, other, dtype=bool)

    def __and__(self, other: Any) -> "GraphTensor":
        return _elementwise("LOGICAL_AND", self, other)

    def __or__(self, other: Any) -> "GraphTensor":
        if not isinstance(other, GraphTensor) and not np.any(other):
            return self
        return _elementwise("LOGICAL_OR", self, other)

    def __ror__(self, other: Any) -> "GraphTensor":
        return self.__or__(other)

    __hash__ = object.__hash__


def constant(value: Any, dtype: Any) -> GraphTensor:
    """A constant of that element type; a number has no dimensions."""
    array = np.asarray(value, dtype)
    return GraphTensor("", (), array.shape, array.dtype, array)


def _is_constant(value: Any) -> bool:
    return isinstance(value, GraphTensor) and value.value is not None


def _is_scalar(tensor: GraphTensor) -> bool:
    return tensor.value is not None and tensor.value.size == 1


def _elementwise(operation: str, *values: Any, dtype: Any = None) -> GraphTensor:
    """Applies an operation to the elements of tensors, arrays and numbers."""
    operands = _as_tensors(values)
    return _record(operation, operands, dtype or operands[0].dtype)


def _as_tensors(values: Sequence[Any]) -> list[GraphTensor]:
    """Makes constants of numbers and arrays, in the element type of the first tensor."""
    dtype = next(value.dtype for value in values if isinstance(value, GraphTensor))
    return [value if isinstance(value, GraphTensor) else constant(value, dtype) for value in values]


def _record(operation: str, operands: Sequence[GraphTensor], dtype: Any) -> GraphTensor:
    """Records an elementwise operation, before a change of layout rather than after it.

    So two changes of layout that undo each other meet and go.
    """
    moved = [operand for operand in operands if not _is_scalar(operand)]
    layout = moved[0].operation
    if layout in ("RESHAPE", "TRANSPOSE") and all(
        one.operation == layout
        and one.operands[0].shape == moved[0].operands[0].shape
        and np.array_equal(one.operands[1].value, moved[0].operands[1].value)  # type: ignore[arg-type]
        for one in moved
    ):
        sources = [
            one.operands[0] if one.value is None else constant(one.value.reshape(()), one.dtype)
            for one in operands
        ]
        result = _record(operation, sources, dtype)
        if layout == "RESHAPE":
            return _reshape(result, moved[0].shape)
        return _transpose(result, moved[0].operands[1].value)
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    # TFLite is several times slower if it has to broadcast.
    operands = [
        one if one.value is None else constant(np.broadcast_to(one.value, shape), one.dtype)
        for one in operands
    ]
    return GraphTensor(operation, operands, shape, dtype)


def _where(condition: GraphTensor, a: Any, b: Any) -> GraphTensor:
    operands = [condition]
    operands += [
        one if isinstance(one, GraphTensor) else constant(one, np.float32) for one in (a, b)
    ]
    return _as_limit(_record("SELECT_V2", operands, np.float32))


def _as_limit(selected: GraphTensor) -> GraphTensor:
    """The minimum or maximum, where the selection is one; NaN is treated alike."""
    if selected.operation in ("RESHAPE", "TRANSPOSE"):
        limited = _as_limit(selected.operands[0])
        if limited is selected.operands[0]:
            return selected
        operands = (limited, selected.operands[1])
        return GraphTensor(selected.operation, operands, selected.shape, selected.dtype)
    condition, a, b = selected.operands
    limits = {"LESS": "MINIMUM", "GREATER": "MAXIMUM"}
    if condition.operation not in limits:
        return selected
    left, right = condition.operands
    if left is not a or b.value is None or not np.array_equal(right.value, b.value):  # type: ignore[arg-type]
        return selected
    return GraphTensor(limits[condition.operation], (a, b), selected.shape, selected.dtype)


def _reshape(tensor: GraphTensor, shape: Sequence[int]) -> GraphTensor:
    known = math.prod(size for size in shape if size != -1)
    shape = tuple(math.prod(tensor.shape) // known if size == -1 else size for size in shape)
    if tensor.operation == "CAST":
        return _to_float(_reshape(tensor.operands[0], shape))
    if tensor.operation == "RESHAPE":
        tensor = tensor.operands[0]
    if tensor.shape == shape:
        return tensor
    return GraphTensor("RESHAPE", (tensor, constant(shape, np.int32)), shape, tensor.dtype)


def _transpose(tensor: GraphTensor, axes: Any = None) -> GraphTensor:
    order = list(range(len(tensor.shape))[::-1] if axes is None else axes)
    shape = tuple(tensor.shape[axis] for axis in order)
    wide = [axis for axis in order if tensor.shape[axis] != 1]
    if wide == sorted(wide):
        return _reshape(tensor, shape)
    if tensor.operation == "TRANSPOSE":
        source, earlier = tensor.operands
        assert earlier.value is not None
        order = [int(earlier.value[axis]) for axis in order]
        if order == sorted(order):
            return source
        tensor = source
    return GraphTensor("TRANSPOSE", (tensor, constant(order, np.int32)), shape, tensor.dtype)


def _concat(tensors: Sequence[Any], axis: int) -> GraphTensor:
    operands = _as_tensors(tensors)
    if len(operands) == 1:
        return operands[0]
    shape = list(operands[0].shape)
    shape[axis] = sum(one.shape[axis] for one in operands)
    return GraphTensor("CONCATENATION", operands, shape, operands[0].dtype, axis=axis)


def _stack(tensors: Sequence[GraphTensor], axis: int) -> GraphTensor:
    """Stacks tensors of one row: puts them side by side, integers before they are converted."""
    shape = list(tensors[0].shape)
    shape.insert(axis, len(tensors))
    parts = []
    for operation, group in itertools.groupby(tensors, lambda tensor: tensor.operation):
        together = list(group)
        if operation == "CAST":
            sources = [tensor.operands[0] for tensor in together]
            parts.append(_to_float(_side_by_side(sources)))
        else:
            parts.append(_side_by_side(together))
    return _reshape(_side_by_side(parts), shape)


def _side_by_side(tensors: Sequence[GraphTensor]) -> GraphTensor:
    unshaped = [one.operands[0] if one.operation == "RESHAPE" else one for one in tensors]
    if len({len(one.shape) for one in unshaped}) == 1:
        tensors = unshaped
    return _concat(tensors, len(tensors[0].shape) - 1)


def _matmul(activation: GraphTensor, matrix: GraphTensor) -> GraphTensor:
    """activation [rows, inputs] times the transposed matrix [outputs, inputs]."""
    shape = (activation.shape[0], matrix.shape[0])
    return GraphTensor("FULLY_CONNECTED", (activation, matrix), shape, np.float32)


def _to_float(tensor: GraphTensor) -> GraphTensor:
    if tensor.dtype == np.float32:
        return tensor
    return GraphTensor("CAST", (tensor,), tensor.shape, np.float32)


def _recorded(
    record: Callable[..., GraphTensor], compute: Callable[..., Any]
) -> Callable[..., Any]:
    """An operation that is computed where its first operand is an array."""

    def apply(operand: Any, *others: Any) -> Any:
        return (record if isinstance(operand, GraphTensor) else compute)(operand, *others)

    return apply


#: The operations of `network.NUMPY_OPS`, recorded.
TFLITE_OPS = SimpleNamespace(
    bits=lambda tensor: GraphTensor("BITCAST", (tensor,), tensor.shape, np.int32),
    concat=_concat,
    matmul=_matmul,
    reshape=_recorded(_reshape, NUMPY_OPS.reshape),
    stack=_stack,
    to_float=_to_float,
    transpose=_transpose,
    where=_recorded(_where, NUMPY_OPS.where),
    zeros_like=lambda tensor: np.zeros(tensor.shape, tensor.dtype),
)
