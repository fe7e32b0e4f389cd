// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A call keeps a unit of two bytes in memory. They are stored one by one and read together, which no
// core can forward; with -DWIDE they are stored together.

#include <string.h>

struct unit {
  unsigned char low, high;
};

__attribute__((noinline)) static void append(struct unit *out, const struct unit *unit) {
  *out = *unit;
}

int main(int argc, char **argv) {
  (void)argv;
  struct unit unit, out[64];
#pragma clang loop unroll(disable)
  for (unsigned i = 0; i < 100000; ++i) {
#ifdef WIDE
    unsigned short both = (unsigned short)(i + (unsigned)argc);
    memcpy(&unit, &both, sizeof unit);
#else
    unit.low = (unsigned char)i;
    unit.high = (unsigned char)argc;
#endif
    append(out + i % 64, &unit);
  }
  return out[1].low == 255;
}
