/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * A server in small: handlers behind a table of pointers, helpers worth inlining or not, recursion. */
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 512
#define KEEP __attribute__((noinline))

static unsigned long slots[SLOTS];
static unsigned state = 42;

static unsigned next(void) { return state = state * 1103515245u + 12345u; }

static unsigned long mixed(unsigned long x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185ul;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44dul;
  return x ^ (x >> 33);
}

static int find(unsigned long key) {
  int slot = mixed(key) % SLOTS;
  for (int tries = 0; tries < 16 && slots[slot] && slots[slot] != key; ++tries)
    slot = (slot + 1) % SLOTS;
  return slot;
}

static unsigned long depth(unsigned long x) {
  if (x < 2)
    return 1;
  return x & 1 ? 1 + depth(x / 2) : depth(x / 2) + depth(x / 4);
}

static unsigned long digest(const unsigned long *values, int n) {
  unsigned long a = 1, b = 2, c = 3, d = 5, e = 7, f = 11, g = 13, h = 17, i = 19, j = 23, k = 29, l = 31, m = 37;
  for (int t = 0; t < n; ++t) {
    unsigned long v = values[t];
    a += b ^ v; b += c * 3; c ^= d + v; d += e ^ a; e += f * 5; f ^= g + a; g += h ^ b; h += i * 7;
    i ^= j + m; j += k ^ c; k += l * 9; l ^= a + i; m += v ^ d;
    if ((v & 7) == 3)
      a += mixed(v);
  }
  return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l ^ m;
}

KEEP static unsigned long get(unsigned long key) { return slots[find(key)] == key ? mixed(key) : 0; }

KEEP static unsigned long put(unsigned long key) {
  int slot = find(key);
  unsigned long before = slots[slot];
  slots[slot] = key;
  return before;
}

KEEP static unsigned long scan(unsigned long key) { return digest(slots, 64 + key % 64) + depth(key % 512); }

static unsigned long (*const handlers[])(unsigned long) = {get, get, get, put, scan};

int main(int argc, char **argv) {
  unsigned long sum = 0;
  for (long n = argc > 1 ? atol(argv[1]) : 1000; n > 0; --n)
    sum += handlers[(next() >> 16) % 5](1 + (next() >> 8) % 300);
  printf("%lu\n", sum);
  return 0;
}
