// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A function that seldom needs callee-saved registers.

#include <stdlib.h>

__attribute__((noinline)) static long scramble(long x) {
  for (int i = 0; i < 3; i++)
    x = x * 6364136223846793005L + 1442695040888963407L;
  return x;
}

__attribute__((noinline)) static long visit(long key, const long *table) {
  if (key & 63)
    return key;
  long a = scramble(key), b = scramble(a ^ table[1]), c = scramble(b + key);
  return a + b * table[2] + c * key;
}

int main(int argc, char **argv) {
  long rounds = 1000 * (argc > 1 ? atol(argv[1]) : 1), sum = 0;
  long table[8] = {1, 2, 3, 4, 5, 6, 7, rounds};
  for (long i = 0; i < rounds; i++)
    sum += visit(i, table);
  return sum == 0;
}
