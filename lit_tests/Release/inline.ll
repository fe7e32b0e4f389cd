; PATCH: [MLGO] Give policies what the default policy decides by
;
; The mock model, compiled ahead of time, inlines every call that is not a recursion; the tools say
; which policy decides when none is compiled in.
; RUN: opt -S -passes=scc-oz-module-inliner -enable-ml-inliner=release < %s | FileCheck %s
; RUN: opt -S -passes=scc-oz-module-inliner -enable-ml-inliner=default -inline-threshold=0 \
; RUN:   < %s | FileCheck %s --check-prefix=DEFAULT

target triple = "x86_64-unknown-linux-gnu"

declare void @sink(i32)

define void @callee(i32 %x) {
  call void @sink(i32 %x)
  call void @sink(i32 %x)
  call void @sink(i32 %x)
  call void @sink(i32 %x)
  ret void
}

; CHECK-LABEL: define void @caller
; CHECK-NOT:     call void @callee
; CHECK:         ret void
; DEFAULT-LABEL: define void @caller
; DEFAULT:         call void @callee
define void @caller(i32 %x) {
  call void @callee(i32 %x)
  ret void
}
