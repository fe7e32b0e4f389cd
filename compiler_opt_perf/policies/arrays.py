# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays in numpy's .npz files: a full disk is one kind of error, damage of any kind another."""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.execution.files import open_input


class ArraysError(Exception):
    """A file of arrays that is damaged, or lacks an expected array; the message is the reason."""


def write_arrays(path: Path, *, compressed: bool = False, **arrays: npt.NDArray[Any]) -> None:
    """Writes the file. Raises OSError, which numpy.savez into a file hides when a disk is full."""
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    path.write_bytes(stream.getvalue())


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these names.

    Raises:
      ArraysError: one is missing, or the file is damaged or cannot be read.
    """
    try:
        with open_input(path) as stream, np.load(stream, allow_pickle=False) as found:
            return {name: found[name] for name in names}
    except KeyError as error:
        raise ArraysError(str(error.args[0])) from error
    except (
        *(OSError, ValueError, TypeError, AttributeError, EOFError, MemoryError),
        # Of a damaged archive, of compressions that Python's zipfile does not have.
        *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError),
    ) as error:
        raise ArraysError(str(error) or type(error).__name__) from error


def require_vector(name: str, array: npt.NDArray[Any], dtype: str, size: int) -> None:
    """Checks that an array is [size], of that type and finite. Raises ArraysError."""
    if array.dtype != np.dtype(dtype) or array.shape != (size,):
        raise ArraysError(f"{name} is {array.dtype} {list(array.shape)}, expected {dtype} [{size}]")
    if not np.isfinite(array).all():
        raise ArraysError(f"{name} has values that are not finite")
