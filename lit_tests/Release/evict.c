// PATCH: [MLGO] Give policies what the default policy decides by
//
// The mock eviction model, compiled ahead of time, is the one that decides in release mode: it evicts
// other live ranges than the default policy, in clang and in llc alike.
// REQUIRES: clang
// RUN: clang --target=x86_64-linux-gnu -O2 -S %s -o %t.default.s
// RUN: clang --target=x86_64-linux-gnu -O2 -mllvm -regalloc-enable-advisor=release -S %s -o %t.clang.s
// RUN: not diff %t.default.s %t.clang.s
// RUN: clang --target=x86_64-linux-gnu -O2 -S -emit-llvm %s -o %t.ll
// RUN: llc -O2 -o %t.default2.s %t.ll
// RUN: llc -O2 -regalloc-enable-advisor=release -o %t.llc.s %t.ll
// RUN: not diff %t.default2.s %t.llc.s
// RUN: llc -O2 -regalloc-enable-advisor=release -o %t.again.s %t.ll
// RUN: diff %t.llc.s %t.again.s

void sink(long *);

long pressure(long *p, long n) {
  long a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6], h = p[7];
  long i = p[8], j = p[9], k = p[10], l = p[11], m = p[12], o = p[13], q = p[14], r = p[15];
  for (long x = 0; x < n; ++x) {
    a += b * c; b ^= d + x; c += e * f; d ^= g; e += h * i; f ^= j; g += k * l; h ^= m;
    for (long y = 0; y < a; ++y) {
      i += o * y; j ^= q + b; k += r * c; l ^= d; m += e * y; o ^= f; q += g * h; r ^= i;
    }
    if (r & 1)
      sink(p);
  }
  return a + b + c + d + e + f + g + h + i + j + k + l + m + o + q + r;
}
