# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls the C libraries of tools/tracer, which are compiled at first use."""

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_opt_perf.run.command import CommandError
from compiler_opt_perf.toolchain.layout import REPO_ROOT
from compiler_opt_perf.toolchain.native_library import native_library
from compiler_opt_perf.trace.block_table import BlockTable
from compiler_opt_perf.trace.errors import TraceError

SOURCES = REPO_ROOT / "tools" / "tracer"

# The difference of two block numbers takes at most this many bytes.
_MAX_BYTES = 5

Numbers = npt.NDArray[np.uint32]

# Messages by the error codes of tools/tracer/reader.c.
_ERRORS = {
    -1: "the compressed data is damaged",
    -2: "the list of blocks is malformed",
    -3: "a block number is larger than the block table",
    -4: "not enough memory",
}


def library(name: str) -> Path:
    """Returns the shared library of tools/tracer/NAME.c; compiles it if needed.

    Raises:
      TraceError: the compilation failed.
    """
    source = SOURCES / f"{name}.c"
    try:
        return native_library(source, [SOURCES / "record.h"], ["-lzstd"])
    except CommandError as error:
        raise TraceError(
            f"{source}: does not compile; tools/bootstrap installs the missing packages\n{error}"
        ) from error


_SIZE, _POINTER = ctypes.c_size_t, ctypes.c_void_p


def _load(name: str, *functions: tuple[Any, ...]) -> Any:
    """Loads a library, whose functions are given by name, type of the result and of arguments."""
    loaded = ctypes.CDLL(str(library(name)))
    for function, result, *arguments in functions:
        getattr(loaded, function).restype = result
        getattr(loaded, function).argtypes = arguments
    return loaded


@functools.cache
def _reader() -> Any:
    return _load(
        "reader",
        ("trace_decode", ctypes.c_int, _POINTER, _SIZE, _SIZE, _POINTER, _SIZE, ctypes.c_uint32),
        ("trace_bound", _SIZE, _SIZE),
        ("trace_compress", ctypes.c_int64, _POINTER, _SIZE, _POINTER, _SIZE),
        ("trace_decompress", ctypes.c_int, _POINTER, _SIZE, _POINTER, _SIZE),
        ("trace_encode", ctypes.c_int64, _POINTER, _SIZE, _POINTER),
        ("trace_windows_new", _POINTER, _SIZE, ctypes.c_uint32),
        ("trace_windows_delete", None, _POINTER),
        ("trace_windows_add", ctypes.c_int64, _POINTER, _POINTER, _SIZE, ctypes.c_int),
        ("trace_windows_size", _SIZE, _POINTER),
        ("trace_windows_numbers", ctypes.POINTER(ctypes.c_uint32), _POINTER),
        ("trace_windows_counts", ctypes.POINTER(ctypes.c_uint64), _POINTER),
    )


@functools.cache
def _predictor() -> Any:
    return _load(
        "branch_predictor",
        ("predictor_new", _POINTER, ctypes.c_uint32, _POINTER, _POINTER),
        ("predictor_delete", None, _POINTER),
        ("predictor_add", ctypes.c_int, _POINTER, _POINTER, _SIZE, ctypes.c_uint64, ctypes.c_int),
        ("predictor_counts", ctypes.POINTER(ctypes.c_uint64), _POINTER),
        ("predictor_wrong_count", _SIZE, _POINTER),
        ("predictor_wrong", ctypes.POINTER(ctypes.c_uint64), _POINTER),
    )


@functools.cache
def _caches() -> Any:
    return _load(
        "code_caches",
        ("caches_new", _POINTER, ctypes.c_uint32, _POINTER, _POINTER),
        ("caches_delete", None, _POINTER),
        ("caches_add", None, _POINTER, _POINTER, _SIZE, _POINTER),
    )


def _check(code: int) -> int:
    if code < 0:
        raise TraceError(_ERRORS[code])
    return code


def compress(raw: bytes) -> bytes:
    """Compresses to one zstd frame with a checksum. Raises TraceError when memory runs out."""
    frame = ctypes.create_string_buffer(_reader().trace_bound(len(raw)))
    size = _check(_reader().trace_compress(raw, len(raw), frame, len(frame)))
    return frame.raw[:size]


def decompress(frame: bytes, raw_bytes: int) -> bytes:
    """Decompresses a zstd frame to `raw_bytes` bytes. Raises TraceError when it is damaged."""
    _require_plausible(frame, raw_bytes)
    raw = ctypes.create_string_buffer(max(1, raw_bytes))
    _check(_reader().trace_decompress(frame, len(frame), raw, raw_bytes))
    return raw.raw[:raw_bytes]


def _require_plausible(frame: bytes, raw_bytes: int) -> None:
    """Checks, before memory is allocated, that a zstd frame can have that much content.

    A block of a frame has a header of 3 bytes and at most 128 KiB of content. Raises TraceError.
    """
    if raw_bytes > (len(frame) // 3 + 1) << 17:
        raise TraceError(_ERRORS[-1])


def encode(numbers: Numbers) -> bytes:
    """Encodes the differences of block numbers in zigzag code and LEB128."""
    numbers = np.ascontiguousarray(numbers, np.uint32)
    raw = np.empty(len(numbers) * _MAX_BYTES, np.uint8)
    size = _reader().trace_encode(numbers.ctypes.data, len(numbers), raw.ctypes.data)
    return raw[:size].tobytes()


def decode(frame: bytes, raw_bytes: int, count: int, limit: int) -> Numbers:
    """Decodes a compressed list of `count` block numbers, uint32; each is at most `limit`.

    Raises:
      TraceError: the list is damaged, or has another length.
    """
    _require_plausible(frame, raw_bytes)
    # Each number takes at least one byte.
    if count > raw_bytes:
        raise TraceError(_ERRORS[-2])
    numbers = np.empty(count, np.uint32)
    _check(_reader().trace_decode(frame, len(frame), raw_bytes, numbers.ctypes.data, count, limit))
    return numbers


class WindowCounter:
    """Counts distinct windows (n-gram contexts) of `length` consecutive blocks.

    Each block ends one window: its predecessors in the stream, oldest first, then the block itself.
    The number `gap` marks a gap, and fills a window with fewer predecessors.
    """

    def __init__(self, length: int, gap: int):
        self._length = length
        self._state = _reader().trace_windows_new(length, gap)
        if not self._state:
            raise TraceError(_ERRORS[-4])

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            _reader().trace_windows_delete(self._state)

    def add(self, numbers: Numbers, starts: bool) -> int:
        """Counts the windows that end at `numbers`; returns their number.

        Args:
          numbers: the stream's next blocks.
          starts: whether the blocks are the first of a stream.
        """
        numbers = np.ascontiguousarray(numbers, np.uint32)
        return _check(
            _reader().trace_windows_add(self._state, numbers.ctypes.data, len(numbers), starts)
        )

    def result(self) -> tuple[Numbers, npt.NDArray[np.uint64]]:
        """Returns windows [N, length] and counts [N], by falling count, then by content."""
        number = _reader().trace_windows_size(self._state)
        if not number:
            return np.empty((0, self._length), np.uint32), np.empty(0, np.uint64)
        windows = np.ctypeslib.as_array(
            _reader().trace_windows_numbers(self._state), (number, self._length)
        )
        counts = np.ctypeslib.as_array(_reader().trace_windows_counts(self._state), (number,))
        # lexsort sorts by its last key first.
        keys = [windows[:, column] for column in range(self._length - 1, -1, -1)]
        order = np.lexsort((*keys, ~counts))
        return windows[order], counts[order]


class BranchPredictor:
    """Simulates a branch predictor and counts the branches that it mispredicts.

    TAGE predicts directions, ITTAGE targets. Streams are simulated one after the other, as
    threads that take turns on one core.
    """

    def __init__(self, table: BlockTable):
        self._blocks = len(table)
        # The library keeps pointers to these arrays.
        self._function = np.ascontiguousarray(table.function, np.uint32)
        entries = table.address == table.entry[table.function]
        self._is_entry = np.ascontiguousarray(entries, np.uint8)
        self._state = _predictor().predictor_new(
            self._blocks, self._function.ctypes.data, self._is_entry.ctypes.data
        )
        if not self._state:
            raise TraceError(_ERRORS[-4])

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            _predictor().predictor_delete(self._state)

    def add(self, numbers: Numbers, first: int, starts: bool) -> None:
        """Simulates the next blocks of a stream.

        Args:
          numbers: the stream's next blocks.
          first: position of the first of them in the run.
          starts: whether the blocks are the first of a stream.
        """
        numbers = np.ascontiguousarray(numbers, np.uint32)
        _check(
            _predictor().predictor_add(
                self._state, numbers.ctypes.data, len(numbers), first, starts
            )
        )

    def result(self) -> npt.NDArray[np.uint64]:
        """Returns counts [B, 4] by block: exits, mispredicted exits, calls, mispredicted calls."""
        counts = _predictor().predictor_counts(self._state)
        return np.ctypeslib.as_array(counts, (self._blocks, 4)).copy()

    def mispredicted(self) -> npt.NDArray[np.uint64]:
        """Returns a code for each mispredicted branch: twice its position, plus 1 for a call.

        They ascend. The position is that of the execution of the block that the branch is in.
        """
        number = _predictor().predictor_wrong_count(self._state)
        if not number:
            return np.empty(0, np.uint64)
        codes = np.ctypeslib.as_array(_predictor().predictor_wrong(self._state), (number,))
        return np.sort(codes)


class CodeCaches:
    """Simulates the caches that code is fetched from: instruction cache, TLB, decoded code.

    Streams are simulated one after the other, as threads that take turns on one core.
    """

    def __init__(self, table: BlockTable):
        address = np.ascontiguousarray(table.address, np.uint64)
        size = np.ascontiguousarray(table.size, np.uint32)
        self._state = _caches().caches_new(len(table), address.ctypes.data, size.ctypes.data)
        if not self._state:
            raise TraceError(_ERRORS[-4])

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            _caches().caches_delete(self._state)

    def add(self, numbers: Numbers) -> npt.NDArray[np.uint16]:
        """Fetches the next blocks of a stream; returns [N, 3], what each execution missed.

        These are lines of the instruction cache, pages of the TLB, and lines of decoded code.
        """
        numbers = np.ascontiguousarray(numbers, np.uint32)
        missed = np.zeros((len(numbers), 3), np.uint16)
        _caches().caches_add(self._state, numbers.ctypes.data, len(numbers), missed.ctypes.data)
        return missed
