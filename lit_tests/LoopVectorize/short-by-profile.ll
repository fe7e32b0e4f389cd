; PATCH: [LoopVectorize] Don't emulate masked stores for the tail of a loop that is short by an estimate
;
; A loop that is short by its profile gets no scalar epilogue. Without masked stores, a mask for its tail is a branch a lane.

; RUN: opt -passes=loop-vectorize -mtriple=x86_64-unknown-linux-gnu -S %s | FileCheck %s
; RUN: opt -passes=loop-vectorize -mtriple=x86_64-unknown-linux-gnu -mattr=+avx512bw,+avx512vl -S %s \
; RUN:   | FileCheck %s --check-prefix=MASKED

; CHECK-LABEL: define void @short(
; CHECK-NOT: vector.body
; CHECK-LABEL: define void @long(
; CHECK: vector.body:
; CHECK: store <8 x i16>
; CHECK-LABEL: define void @seven(
; CHECK: vector.body:
; CHECK: pred.store.if:

; MASKED-LABEL: define void @short(
; MASKED: vector.body:
; MASKED: call void @llvm.masked.store
; MASKED-LABEL: define void @long(

; Ten iterations by the profile.
define void @short(ptr %p, i64 %n, i16 %value) {
entry:
  br label %loop

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr inbounds i16, ptr %p, i64 %i
  store i16 %value, ptr %at
  %next = add nuw nsw i64 %i, 1
  %ends = icmp eq i64 %next, %n
  br i1 %ends, label %exit, label %loop, !prof !0

exit:
  ret void
}

; A thousand.
define void @long(ptr %p, i64 %n, i16 %value) {
entry:
  br label %loop

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr inbounds i16, ptr %p, i64 %i
  store i16 %value, ptr %at
  %next = add nuw nsw i64 %i, 1
  %ends = icmp eq i64 %next, %n
  br i1 %ends, label %exit, label %loop, !prof !1

exit:
  ret void
}

; Seven, whatever the profile says: the mask becomes a constant.
define void @seven(ptr %p, i16 %value) {
entry:
  br label %loop

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr inbounds i16, ptr %p, i64 %i
  store i16 %value, ptr %at
  %next = add nuw nsw i64 %i, 1
  %ends = icmp eq i64 %next, 7
  br i1 %ends, label %exit, label %loop

exit:
  ret void
}

!0 = !{!"branch_weights", i32 1, i32 9}
!1 = !{!"branch_weights", i32 1, i32 999}
