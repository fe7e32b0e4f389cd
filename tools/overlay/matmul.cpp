// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of small matrices, for policies compiled ahead of time.
//
// Takes the place of XLA's function of that name, which packs both matrices and
// clears the result before Eigen multiplies; that pays for large matrices only.
// Large ones, and those in another order, are still Eigen's. Each sum is added
// up in the order of its terms and without fused operations, so that it is the
// same on every processor.

#include <cstdint>
#include <cstring>

#pragma STDC FP_CONTRACT OFF

#define INLINE inline __attribute__((always_inline))

/// XLA's own function, renamed by CMakeLists.txt.
extern "C" void multiplyByEigen(const void *Options, float *Out, float *Left,
                                float *Right, int64_t M, int64_t N, int64_t K,
                                int32_t TransposeLeft, int32_t TransposeRight);

namespace {

/// Matrices whose first dimension is contiguous: Out [M, N] is the product of
/// Left [M, K] and the transposed Right [N, K].
struct Product {
  float *Out;
  const float *Left;
  const float *Right;
  int64_t M, N, K;
};

template <int Width>
using Vector __attribute__((vector_size(Width * 4))) = float;

/// Computes 4 * Width rows of some columns, from row I and column J on. The
/// sums stay in registers.
template <int Width, int Columns>
INLINE void computeBlock(const Product &P, int64_t I, int64_t J) {
  Vector<Width> Sums[Columns][4] = {};
  for (int64_t L = 0; L != P.K; ++L) {
    Vector<Width> Rows[4];
    std::memcpy(Rows, P.Left + L * P.M + I, sizeof(Rows));
    for (int C = 0; C != Columns; ++C)
      for (int V = 0; V != 4; ++V)
        Sums[C][V] += Rows[V] * P.Right[L * P.N + J + C];
  }
  for (int C = 0; C != Columns; ++C)
    std::memcpy(P.Out + (J + C) * P.M + I, Sums[C], sizeof(Sums[C]));
}

/// Computes Width columns of row I, from column J on.
template <int Width>
INLINE void computeRow(const Product &P, int64_t I, int64_t J) {
  Vector<Width> Sums = {};
  for (int64_t L = 0; L != P.K; ++L) {
    Vector<Width> Columns;
    std::memcpy(&Columns, P.Right + L * P.N + J, sizeof(Columns));
    Sums += Columns * P.Left[L * P.M + I];
  }
  for (int C = 0; C != Width; ++C)
    P.Out[(J + C) * P.M + I] = Sums[C];
}

template <int Width> INLINE void compute(const Product &P) {
  int64_t I = 0;
  for (; I + 4 * Width <= P.M; I += 4 * Width) {
    int64_t J = 0;
    for (; J + 2 <= P.N; J += 2)
      computeBlock<Width, 2>(P, I, J);
    for (; J != P.N; ++J)
      computeBlock<Width, 1>(P, I, J);
  }
  for (; I != P.M; ++I) {
    int64_t J = 0;
    for (; J + Width <= P.N; J += Width)
      computeRow<Width>(P, I, J);
    for (; J != P.N; ++J)
      computeRow<1>(P, I, J);
  }
}

__attribute__((target("avx"))) void computeWide(const Product &P) {
  compute<8>(P);
}

void computeNarrow(const Product &P) { compute<4>(P); }

} // namespace

/// What the code of a policy calls: the matrices of Product, if Left is not to
/// be transposed and Right is.
extern "C" void __xla_cpu_runtime_EigenSingleThreadedMatMulF32(
    const void *Options, float *Out, float *Left, float *Right, int64_t M,
    int64_t N, int64_t K, int32_t TransposeLeft, int32_t TransposeRight) {
  // Two such matrices fit into the first-level cache.
  constexpr int64_t Largest = 4096;
  if (TransposeLeft || !TransposeRight || M * K > Largest || N * K > Largest)
    multiplyByEigen(Options, Out, Left, Right, M, N, K, TransposeLeft,
                    TransposeRight);
  else if (__builtin_cpu_supports("avx"))
    computeWide({Out, Left, Right, M, N, K});
  else
    computeNarrow({Out, Left, Right, M, N, K});
}
