# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the compiler writes tensors, in training logs and in interactive mode.

A header of JSON lists the tensors as llvm/lib/Analysis/TensorSpec.cpp describes them; a record is
their bytes one after the other, little endian.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

# No tensor of the compiler is larger; a file that claims one is damaged.
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


class Tensor(msgspec.Struct, frozen=True):
    """A tensor in the header, as far as its bytes depend on it."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    type: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(_NUMPY_TYPES)})$")]
    shape: tuple[Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_EXTENT)], ...]


def record_type(tensors: Sequence[Tensor]) -> np.dtype[np.void]:
    """The type of a record: a field a tensor, of the tensor's name and shape.

    Raises:
      ValueError: impossibly large, or two of one name.
    """
    fields = [(one.name, _NUMPY_TYPES[one.type], one.shape) for one in tensors]
    try:
        return np.dtype(fields)
    except ValueError as error:
        raise ValueError(f"the tensors do not form a record ({error})") from error
