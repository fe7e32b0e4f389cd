// PATCH: [MLGO] Warn of a size model in code for speed, and don't promise a fallback
//
// The inlining model in a compiler was trained for size.
// REQUIRES: clang
// DEFINE: %{level} =
// DEFINE: %{compile} = clang --target=x86_64-linux-gnu %{level} -c %s -o %t.o
// DEFINE: %{release} = %{compile} -mllvm -enable-ml-inliner=release
// REDEFINE: %{level} = -O2
// RUN: %{release} 2>&1 | FileCheck %s
// RUN: %{release} -DSMALL -Werror
// RUN: %{release} -DNOTHING -Werror
// RUN: %{compile} -Werror
// REDEFINE: %{level} = -Os
// RUN: %{release} -Werror
// REDEFINE: %{level} = -Oz
// RUN: %{release} -Werror
// CHECK: warning: the inlining model in this compiler was trained for size, and '{{.*}}for-speed.c' is compiled for speed; use it with -Os or -Oz [-Wbackend-plugin]

#ifndef NOTHING
void sink(void);
void f(void) { sink(); }
#endif
#ifdef SMALL
__attribute__((minsize)) void g(void) { sink(); }
#endif
