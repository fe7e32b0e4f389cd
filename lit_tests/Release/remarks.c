// PATCH: [MLGO] Give the eviction policy PMU features, and callee-saved registers to decide
//
// What clang prints of decisions is a sentence; the numbers are in the file of remarks.
// REQUIRES: clang
// RUN: clang --target=x86_64-linux-gnu -Oz -mllvm -enable-ml-inliner=release -Rpass=inline-ml \
// RUN:   -fsave-optimization-record -foptimization-record-file=%t.yaml -c %s -o %t.o 2>&1 \
// RUN:   | FileCheck %s
// RUN: FileCheck %s --check-prefix=RECORD < %t.yaml
// RUN: clang --target=x86_64-linux-gnu -Oz -mllvm -enable-ml-inliner=default -Rpass=inline-ml \
// RUN:   -c %s -o %t.o 2>&1 | count 0

void sink(int);
static void callee(int x) {
  for (int i = 0; i < x; ++i)
    sink(x);
}
void caller(int x) {
  // CHECK: remarks.c:[[#@LINE+1]]:3: remark: callee is inlined into caller{{(, as by|; the)}} default policy
  callee(3);
}
void other(int x) { callee(x); }

// RECORD:      Pass: {{ *}}inline-ml
// RECORD:      Args:
// RECORD-NEXT: - Callee: callee
// RECORD:      - Caller: caller
// RECORD:      - String:
// RECORD:      - callee_basic_block_count: '{{[0-9]+}}'
// RECORD:      - ShouldInline: 'true'
// RECORD:      - DefaultDecision: '{{[01]}}'
