/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * A list that misses the first level of the cache at each step, a sum that no cost model knows the
 * instructions of (x87), and a choice by chance. */
#include <stdio.h>
#include <stdlib.h>

enum { NODES = 1 << 14, LINE = 64 };
struct node {
  struct node *next;
  long value;
  char rest[LINE - 16];
};

__attribute__((noinline)) static long walk(const struct node *at) {
  long sum = 0;
  for (; at; at = at->next)
    sum += at->value;
  return sum;
}

__attribute__((noinline)) static long double third(long n) {
  long double sum = 0;
  for (long i = 1; i <= n; ++i)
    sum += 1.0L / i;
  return sum;
}

__attribute__((noinline)) static long chosen(const struct node *nodes) {
  long sum = 0;
  for (long i = 0; i < NODES; ++i) {
    if (nodes[i].value & 4)
      printf("%ld\n", sum);
    sum += i;
  }
  return sum;
}

__attribute__((noinline)) long never(long x) { return 3 * x; }

int main(int argc, char **argv) {
  if (argc > 1)
    return never(atol(argv[1]));
  struct node *nodes = calloc(NODES, sizeof *nodes), *last = NULL;
  unsigned long random = 1;
  /* An odd factor visits each node once, far from the one before. */
  for (unsigned i = 0; i < NODES; ++i) {
    struct node *one = &nodes[i * 7919u % NODES];
    one->next = last;
    random = random * 6364136223846793005u + 1442695040888963407u;
    one->value = random >> 40;
    last = one;
  }
  printf("%ld %ld %Lf\n", walk(last), chosen(nodes), third(1000));
  free(nodes);
  return 0;
}
