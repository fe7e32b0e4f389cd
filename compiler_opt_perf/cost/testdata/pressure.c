/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * More values live at once than there are registers, in loops and around calls. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static unsigned long step(unsigned long x) { return x ^ (x << 13) ^ (x >> 7); }

__attribute__((noinline)) static unsigned long mix(const unsigned long *in, long n) {
  unsigned long a = in[0], b = in[1], c = in[2], d = in[3], e = in[4], f = in[5], g = in[6], h = in[7];
  unsigned long i = in[8], j = in[9], k = in[10], l = in[11], m = in[12], o = in[13], p = in[14], q = in[15];
  for (long t = 0; t < n; ++t) {
    a += b ^ q; b += c * 3; c ^= d + p; d += e ^ a; e += f * 5; f ^= g + o; g += h ^ b; h += i * 7;
    i ^= j + m; j += k ^ c; k += l * 9; l ^= a + i; m += b ^ d; o += e * 11; p ^= f + j; q += g ^ h;
    if ((a & 63) == 0)
      q += step(a + in[t & 15]);
    in += (b & 1) ? 0 : 0;
  }
  return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l ^ m ^ o ^ p ^ q;
}

int main(int argc, char **argv) {
  long rounds = argc > 1 ? atol(argv[1]) : 10;
  unsigned long values[16], sum = 0;
  for (int i = 0; i < 16; ++i)
    values[i] = step(i + 12345);
  for (long r = 0; r < rounds; ++r)
    sum += values[r & 15] = mix(values, 1000 + r);
  printf("%lu\n", sum);
  return 0;
}
