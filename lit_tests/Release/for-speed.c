// PATCH: [MLGO] Warn of a size model in code for speed, and don't promise a fallback
//
// A model for size does not read how often calls run: a remark, which changes no compilation.
// REQUIRES: clang
// DEFINE: %{level} =
// DEFINE: %{compile} = clang --target=x86_64-linux-gnu %{level} -c %s -o %t.o
// DEFINE: %{release} = %{compile} -mllvm -enable-ml-inliner=release
// REDEFINE: %{level} = -O2
// RUN: %{release} -Rpass-analysis=inline-ml 2>&1 | FileCheck %s
// RUN: %{release} -Werror 2>&1 | count 0
// RUN: %{release} -DSMALL -Rpass-analysis=inline-ml 2>&1 | count 0
// RUN: %{release} -DNOTHING -Rpass-analysis=inline-ml 2>&1 | count 0
// RUN: %{compile} -Rpass-analysis=inline-ml 2>&1 | count 0
// REDEFINE: %{level} = -Os
// RUN: %{release} -Rpass-analysis=inline-ml 2>&1 | count 0
// REDEFINE: %{level} = -Oz
// RUN: %{release} -Rpass-analysis=inline-ml 2>&1 | count 0

// In development mode, too, where there is a model.
// DEFINE: %{development} = %{compile} -mllvm -enable-ml-inliner=development
// DEFINE: %{model} = -mllvm -ml-inliner-model-under-training=%S/../Inputs
// RUN: %{development} %{model}/inline-one-block -Rpass-analysis=inline-ml 2>&1 | count 0
// REDEFINE: %{level} = -O2
// RUN: %{development} %{model}/inline-one-block -Rpass-analysis=inline-ml 2>&1 | FileCheck %s
// RUN: %{development} %{model}/inline-one-block -Werror 2>&1 | count 0
// RUN: %{development} %{model}/inline-one-block -DSMALL -Rpass-analysis=inline-ml 2>&1 | count 0
// RUN: %{development} -mllvm -training-log=%t.log -Rpass-analysis=inline-ml 2>&1 | count 0

// CHECK: remark: the inlining model does not read how often calls run, as one for size does not, and {{.*}}for-speed.c is compiled for speed [-Rpass-analysis=inline-ml]

#ifndef NOTHING
void sink(void);
void f(void) { sink(); }
#endif
#ifdef SMALL
__attribute__((minsize)) void g(void) { sink(); }
#endif
