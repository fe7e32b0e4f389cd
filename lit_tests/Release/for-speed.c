// PATCH: [MLGO] Warn of a size model in code for speed, and don't promise a fallback
//
// A model that does not read how often calls run was trained for size.
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

// In development mode, too, where there is a model.
// DEFINE: %{development} = %{compile} -mllvm -enable-ml-inliner=development
// DEFINE: %{model} = -mllvm -ml-inliner-model-under-training=%S/../Inputs
// RUN: %{development} %{model}/inline-one-block -Werror
// REDEFINE: %{level} = -O2
// RUN: %{development} %{model}/inline-one-block 2>&1 | FileCheck %s
// RUN: %{development} %{model}/inline-one-block -DSMALL -Werror
// RUN: %{development} -mllvm -training-log=%t.log -Werror

// CHECK: warning: the inlining model is one for size (it does not read how often calls run), and '{{.*}}for-speed.c' is compiled for speed; use it with -Os or -Oz [-Wbackend-plugin]

#ifndef NOTHING
void sink(void);
void f(void) { sink(); }
#endif
#ifdef SMALL
__attribute__((minsize)) void g(void) { sink(); }
#endif
