# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the compiler writes tensors, in training logs and in interactive mode.

A header of JSON lists the tensors as llvm/lib/Analysis/TensorSpec.cpp describes them; a record is
their bytes one behind the other, little endian.
"""

from typing import Any

import numpy as np

# Beyond any tensor of the compiler; a larger one is damage.
_LARGEST_EXTENT = 1 << 20
_NUMPY_TYPES = {
    "float": "<f4",
    "double": "<f8",
    "int8_t": "<i1",
    "uint8_t": "<u1",
    "int16_t": "<i2",
    "uint16_t": "<u2",
    "int32_t": "<i4",
    "uint32_t": "<u4",
    "int64_t": "<i8",
    "uint64_t": "<u8",
}


def record_type(specs: list[Any]) -> np.dtype[np.void]:
    """The type of a record: a field a tensor, of the tensor's name and shape.

    Args:
      specs: the header's tensors, `{"name": ..., "type": ..., "shape": [...]}`.

    Raises:
      ValueError: malformed, of unknown type, impossibly large, or two of one name.
    """
    fields = [_tensor(spec) for spec in specs]
    try:
        return np.dtype(fields)
    except ValueError as error:
        raise ValueError(f"the tensors make no record ({error})") from error


def _tensor(spec: Any) -> tuple[str, str, tuple[int, ...]]:
    try:
        name, kind = str(spec["name"]), _NUMPY_TYPES[spec["type"]]
        shape = tuple(int(extent) for extent in spec["shape"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"malformed tensor {spec!r}") from error
    if not all(1 <= extent <= _LARGEST_EXTENT for extent in shape):
        raise ValueError(f"impossible shape {list(shape)} of {name!r}")
    return name, kind, shape
