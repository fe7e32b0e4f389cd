# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of tools/overlay/matmul.cpp, which multiplies matrices for compiled policies."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from compiler_opt_perf.run.llvm import LLVM_PREFIX
from compiler_opt_perf.toolchain.layout import REPO_ROOT

pytestmark = pytest.mark.compiler

Matrix = npt.NDArray[np.float32]
_SOURCE = REPO_ROOT / "tools/overlay/matmul.cpp"
# Replaces Eigen and marks the products that it was called for.
_EIGEN = """
#include <cstdint>
extern "C" void multiplyByEigen(const void *, float *Out, float *, float *, int64_t, int64_t,
                                int64_t, int32_t, int32_t) { *Out = -1; }
"""


def _compile(folder: Path, *options: str) -> ctypes.CDLL:
    eigen = folder / "eigen.cpp"
    eigen.write_text(_EIGEN)
    library = folder / "matmul.so"
    subprocess.run(
        [LLVM_PREFIX / "bin/clang++", "-O3", "-Wall", "-Werror", "-shared", "-fPIC", *options,
         _SOURCE, eigen, "-o", library],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module", params=["this processor", "no AVX"])
def multiply(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Matrix, Matrix, bool], Matrix]:
    """A function of left [K, M] and right [K, N] that returns their product [N, M], row-major."""
    options = ["-D__builtin_cpu_supports(name)=0"] if request.param == "no AVX" else []
    library = _compile(tmp_path_factory.mktemp("matmul"), *options)
    function = library["__xla_cpu_runtime_EigenSingleThreadedMatMulF32"]
    pointer, size, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    function.argtypes = [pointer] * 4 + [size] * 3 + [flag] * 2
    function.restype = None

    def run(left: Matrix, right: Matrix, transpose_left: bool = False) -> Matrix:
        (k, m), n = left.shape, right.shape[1]
        # The numbers before and behind the product must stay as they are.
        out = np.full(n * m + 2, 7, np.float32)
        address = out[1:].ctypes.data
        function(
            None, address, left.ctypes.data, right.ctypes.data, m, n, k, int(transpose_left), 1
        )
        assert out[0] == out[-1] == 7
        return out[1:-1].reshape(n, m)

    return run


def _random(*shape: int) -> Matrix:
    # Not on a grid, so that the sums' last bits tell the order of additions.
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("k", [1, 45])
@pytest.mark.parametrize("n", [1, 2, 8, 16, 21])
@pytest.mark.parametrize("m", [1, 15, 33, 66])
def test_sums_are_in_the_order_of_their_terms_on_every_processor(
    multiply: Callable[..., Matrix], m: int, n: int, k: int
) -> None:
    left, right = _random(k, m), _random(k, n)
    expected = np.zeros((n, m), np.float32)
    for a, b in zip(left, right, strict=True):
        expected += a[None, :] * b[:, None]
    np.testing.assert_array_equal(multiply(left, right), expected)


@pytest.mark.parametrize(("m", "n", "transpose"), [(100, 2, False), (2, 100, False), (4, 4, True)])
def test_other_products_are_eigens(
    multiply: Callable[..., Matrix], m: int, n: int, transpose: bool
) -> None:
    product = multiply(_random(45, m), _random(45, n), transpose)
    assert product[0, 0] == -1
