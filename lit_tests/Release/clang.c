// PATCH: [MLGO] Give policies what the default policy decides by
//
// clang has both models and finds its own headers.
// REQUIRES: clang
// RUN: clang --target=x86_64-linux-gnu -Oz -mllvm -enable-ml-inliner=release \
// RUN:   -mllvm -regalloc-enable-advisor=release -S %s -o %t.s
// RUN: FileCheck %s < %t.s

#include <stddef.h>

void sink(size_t);

static void callee(size_t x) {
  for (size_t i = 0; i < x; ++i)
    sink(x);
}

// CHECK-LABEL: caller:
// CHECK-NOT:     call{{.*}}callee
// CHECK:         sink
void caller(void) { callee(3); }
void other(size_t n) { callee(n); }
