# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays in numpy's .npz files: a full disk is one kind of error, damage of any kind another."""

import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.errors import UserError
from compiler_opt_perf.run.files import open_input

#: Of the arrays of a training, together: no file of ours has larger ones.
MOST_BYTES = 1 << 30
# Without types.
_FORMAT: Any = np.lib.format


class ArraysError(UserError):
    """A file of arrays that is damaged, or lacks an expected array; the message is the reason."""


def write_arrays(path: Path, *, compressed: bool = False, **arrays: npt.NDArray[Any]) -> None:
    """Writes the file; uncompressed, with the same bytes by all versions of Python.

    numpy.savez has other bytes by Python 3.13 than by 3.11, and hides a full disk.

    Raises:
      OSError: the file cannot be written.
      ValueError: an array holds Python objects.
    """
    stream = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            _FORMAT.write_array(content, np.asanyarray(array), allow_pickle=False)
            # The date is the first one that archives have.
            member = zipfile.ZipInfo(f"{name}.npy")
            archive.writestr(member, content.getbuffer(), method)
    path.write_bytes(stream.getvalue())


def read_arrays(
    path: Path, names: Iterable[str], most: int = MOST_BYTES
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these names.

    A few MB of an archive can stand for GB: sizes are known before any data is unpacked.

    Args:
      most: bytes that the arrays may have together.

    Raises:
      ArraysError: one is missing, they have more bytes, or the file is damaged or cannot be read.
    """
    try:
        with open_input(path) as stream:
            # The list of what an archive holds is read as a whole.
            if os.fstat(stream.fileno()).st_size > most:
                raise ArraysError(f"has more than {most:,} bytes")
            with zipfile.ZipFile(stream) as archive:
                members = {name: _member(archive, name) for name in names}
                if sum(member.file_size for member in members.values()) > most:
                    raise ArraysError(f"its arrays have more than {most:,} bytes")
                return {name: _read(archive, member) for name, member in members.items()}
    except (
        *(OSError, ValueError, TypeError, AttributeError, EOFError, MemoryError),
        # Of a damaged archive, of compressions that Python's zipfile does not have.
        *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError),
    ) as error:
        raise ArraysError(str(error) or type(error).__name__) from error


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(f"{name}.npy")
    except KeyError as error:
        raise ArraysError(f"{name} is missing") from error


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """An array, where its header tells as many bytes as the archive has of it."""
    with archive.open(member) as stream:
        read_header = {
            (1, 0): _FORMAT.read_array_header_1_0,
            (2, 0): _FORMAT.read_array_header_2_0,
        }.get(_FORMAT.read_magic(stream))
        if read_header is None:
            raise ArraysError(f"{member.filename} is of an unknown version")
        shape, _, dtype = read_header(stream)
        if math.prod(shape) * dtype.itemsize != member.file_size - stream.tell():
            raise ArraysError(f"{member.filename} has not as many bytes as its header tells")
    with archive.open(member) as stream:
        return np.asarray(_FORMAT.read_array(stream, allow_pickle=False))


def require_vector(name: str, array: npt.NDArray[Any], dtype: str, size: int) -> None:
    """Checks that an array is [size], of that type and finite. Raises ArraysError."""
    if array.dtype != np.dtype(dtype) or array.shape != (size,):
        raise ArraysError(f"{name} is {array.dtype} {list(array.shape)}, expected {dtype} [{size}]")
    if not np.isfinite(array).all():
        raise ArraysError(f"{name} has values that are not finite")
