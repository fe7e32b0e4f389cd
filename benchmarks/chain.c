/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * A chain of dependent additions, one in a core cycle: so many thousands of them. */
#include <stdlib.h>

int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) * 10 : 0;
  if (n <= 0)
    return 0;
  __asm__ volatile("1:\n .rept 100\n add %%rcx, %%rax\n .endr\n dec %0\n jnz 1b" : "+r"(n) : : "rax", "rcx", "cc");
  return 0;
}
