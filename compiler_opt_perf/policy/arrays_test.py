# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import io
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from compiler_opt_perf.policy.arrays import ArraysError, read_arrays, write_arrays

_MIB = 1 << 20


@pytest.mark.parametrize("limit", [100, 1000, 5000])
def test_a_full_disk_is_one_kind_of_error(limit: int, tmp_path: Path) -> None:
    # So small files stand for a full disk.
    code = f"""
import resource
from pathlib import Path
import numpy as np
from compiler_opt_perf.policy.arrays import write_arrays

resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    write_arrays(Path({str(tmp_path / "x.npz")!r}), mean=np.zeros(500), best=np.zeros(500))
except OSError as error:
    print(error.strerror)
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    # Nor does numpy show another one when it is done with its archive.
    assert (completed.stdout, completed.stderr) == ("File too large\n", "")


def _npy(shape: str, kind: str = "<f4") -> bytes:
    """The header of an array."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _archive(path: Path, *names: str, content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(f"{name}.npy", content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # Zeros, which hardly take any room; 5 MiB are allowed.
        (
            _npy(f"({8 * _MIB},)", "|u1") + bytes(8 * _MIB),
            "its arrays have more than 5,242,880 byt",
        ),
        # Each would do by itself.
        (
            _npy(f"({3 * _MIB},)", "|u1") + bytes(3 * _MIB),
            "its arrays have more than 5,242,880 byt",
        ),
        # A header that tells more than there is.
        (_npy(f"({1 << 40},)") + bytes(100), "not as many bytes as its header tells"),
        (_npy("()", f"|V{1 << 30}") + bytes(100), "not as many bytes as its header tells"),
        (_npy("(-4,)") + bytes(100), "not as many bytes as its header tells"),
        # And one that is itself too long.
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 8 * _MIB) + b" " * 8 * _MIB, "5,242,880 bytes"),
        (b"\x93NUMPY\x09\x00" + bytes(100), "unknown version|format version"),
    ],
)
def test_sizes_are_known_before_data_is_unpacked(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.npz"
    _archive(path, "a", "b", content=content)
    assert path.stat().st_size < _MIB / 10
    tracemalloc.start()
    try:
        with pytest.raises(ArraysError, match=message):
            read_arrays(path, ["a", "b"], 5 * _MIB)
        assert tracemalloc.get_traced_memory()[1] < _MIB
    finally:
        tracemalloc.stop()


def test_what_is_no_archive_is_an_error(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    path = tmp_path / "x.npz"
    for content in (stream.getvalue(), b"", b"PK\x03\x04", bytes(6 * _MIB)):
        path.write_bytes(content)
        with pytest.raises(ArraysError):
            read_arrays(path, ["a"], 5 * _MIB)
    np.savez(path, a=np.array([object()], object))
    with pytest.raises(ArraysError):
        read_arrays(path, ["a"])
    write_arrays(path, compressed=True, a=np.array("text"), b=np.zeros((0, 3), "<f4"))
    with pytest.raises(ArraysError, match="c is missing"):
        read_arrays(path, ["a", "c"])
    found = read_arrays(path, ["a", "b"])
    assert (str(found["a"]), found["b"].shape) == ("text", (0, 3))
