// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// 500 functions of 60 KiB of code together. The first argument says how often all are called in
// turn, so that none follows its neighbour; the second says how often one of them is called.
#include <stdlib.h>

#define ONES(M, a, b)                                                                              \
  M(a, b, 0) M(a, b, 1) M(a, b, 2) M(a, b, 3) M(a, b, 4)                                           \
  M(a, b, 5) M(a, b, 6) M(a, b, 7) M(a, b, 8) M(a, b, 9)
#define TENS(M, a)                                                                                 \
  ONES(M, a, 0) ONES(M, a, 1) ONES(M, a, 2) ONES(M, a, 3) ONES(M, a, 4)                            \
  ONES(M, a, 5) ONES(M, a, 6) ONES(M, a, 7) ONES(M, a, 8) ONES(M, a, 9)
#define ALL(M) TENS(M, 0) TENS(M, 1) TENS(M, 2) TENS(M, 3) TENS(M, 4)

#define DEFINE(a, b, c)                                                                            \
  __attribute__((noinline)) unsigned long f##a##b##c(unsigned long x, unsigned long y) {           \
    if (x & 1)                                                                                     \
      y += 1##a##b##c;                                                                             \
    x = x * 3##a##b##c ^ (y + (x >> 4));                                                           \
    y = y * 5##a##b##c ^ (x + (y >> 5));                                                           \
    x = x * 7##a##b##c ^ (y + (x >> 6));                                                           \
    y = y * 9##a##b##c ^ (x + (y >> 7));                                                           \
    return x + y;                                                                                  \
  }
#define CALL(a, b, c) x = f##a##c##b(x, i);

ALL(DEFINE)

int main(int argc, char **argv) {
  unsigned long x = argc, rounds = atoi(argv[1]), calls = atoi(argv[2]);
  for (unsigned long i = 0; i < rounds; i++) {
    ALL(CALL)
  }
  for (unsigned long i = 0; i < calls; i++)
    x = f000(x, i);
  return x == 1;
}
