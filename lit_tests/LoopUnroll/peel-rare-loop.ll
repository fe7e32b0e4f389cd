; PATCH: [LoopUnroll] Don't peel by the profile what is rare beside a loop around it
;
; Iterations that the profile expects are peeled off a loop that counts, not off one that the loop around hardly ever enters.

; RUN: opt -passes='require<profile-summary>,function(loop-unroll)' -S %s | FileCheck %s
; RUN: opt -passes='require<profile-summary>,function(loop-unroll)' -S %s -unroll-peel-rare-loop-ratio=0 \
; RUN:   | FileCheck %s --check-prefix=ALL

; The inner loop is entered in every thousandth iteration, for two iterations.
; CHECK-LABEL: define void @rare(
; CHECK-NOT: .peel
; CHECK-LABEL: define void @often(
; CHECK: inner.peel:
; CHECK-LABEL: define void @alone(
; CHECK: inner.peel:
; CHECK-LABEL: define void @rare_by_the_outermost(
; CHECK-NOT: .peel
; CHECK: {{^}}}

; ALL-LABEL: define void @rare(
; ALL: inner.peel:
; ALL-LABEL: define void @rare_by_the_outermost(
; ALL: inner.peel:

define void @rare(i32 %n, i32 %m) !prof !20 {
entry:
  br label %outer

outer:
  %i = phi i32 [ 0, %entry ], [ %next, %latch ]
  call void @f(i32 %i)
  %enters = icmp slt i32 %i, %m
  br i1 %enters, label %inner, label %latch, !prof !23

inner:
  %j = phi i32 [ %m, %outer ], [ %j.next, %inner ]
  call void @f(i32 %j)
  %j.next = add i32 %j, 1
  %j.ends = icmp slt i32 %j.next, %n
  br i1 %j.ends, label %inner, label %latch, !prof !22

latch:
  %next = add i32 %i, 1
  %goes = icmp slt i32 %next, %n
  br i1 %goes, label %outer, label %exit, !prof !21

exit:
  ret void
}

; Every second iteration enters the inner loop.
define void @often(i32 %n, i32 %m) !prof !20 {
entry:
  br label %outer

outer:
  %i = phi i32 [ 0, %entry ], [ %next, %latch ]
  call void @f(i32 %i)
  %enters = icmp slt i32 %i, %m
  br i1 %enters, label %inner, label %latch, !prof !24

inner:
  %j = phi i32 [ %m, %outer ], [ %j.next, %inner ]
  call void @f(i32 %j)
  %j.next = add i32 %j, 1
  %j.ends = icmp slt i32 %j.next, %n
  br i1 %j.ends, label %inner, label %latch, !prof !22

latch:
  %next = add i32 %i, 1
  %goes = icmp slt i32 %next, %n
  br i1 %goes, label %outer, label %exit, !prof !21

exit:
  ret void
}

; No loop around it.
define void @alone(i32 %n, i32 %m) !prof !20 {
entry:
  br label %inner

inner:
  %j = phi i32 [ %m, %entry ], [ %j.next, %inner ]
  call void @f(i32 %j)
  %j.next = add i32 %j, 1
  %j.ends = icmp slt i32 %j.next, %n
  br i1 %j.ends, label %inner, label %exit, !prof !22

exit:
  ret void
}

; The loop around is as rare; the outermost one is not.
define void @rare_by_the_outermost(i32 %n, i32 %m) !prof !20 {
entry:
  br label %outer

outer:
  %i = phi i32 [ 0, %entry ], [ %next, %latch ]
  call void @f(i32 %i)
  %enters = icmp slt i32 %i, %m
  br i1 %enters, label %middle, label %latch, !prof !23

middle:
  %k = phi i32 [ %m, %outer ], [ %k.next, %middle.latch ]
  call void @f(i32 %k)
  br label %inner

inner:
  %j = phi i32 [ %k, %middle ], [ %j.next, %inner ]
  call void @f(i32 %j)
  %j.next = add i32 %j, 1
  %j.ends = icmp slt i32 %j.next, %n
  br i1 %j.ends, label %inner, label %middle.latch, !prof !22

middle.latch:
  %k.next = add i32 %k, 3
  %k.ends = icmp slt i32 %k.next, %n
  br i1 %k.ends, label %middle, label %latch, !prof !22

latch:
  %next = add i32 %i, 1
  %goes = icmp slt i32 %next, %n
  br i1 %goes, label %outer, label %exit, !prof !21

exit:
  ret void
}

declare void @f(i32)

!llvm.module.flags = !{!0}

!0 = !{i32 1, !"ProfileSummary", !1}
!1 = !{!2, !3, !4, !5, !6, !7, !8, !9}
!2 = !{!"ProfileFormat", !"InstrProf"}
!3 = !{!"TotalCount", i64 2002000}
!4 = !{!"MaxCount", i64 1000000}
!5 = !{!"MaxInternalCount", i64 1000000}
!6 = !{!"MaxFunctionCount", i64 1}
!7 = !{!"NumCounts", i64 12}
!8 = !{!"NumFunctions", i64 4}
!9 = !{!"DetailedSummary", !10}
!10 = !{!11, !12, !13}
!11 = !{i32 10000, i64 1000000, i32 1}
!12 = !{i32 999000, i64 1000, i32 8}
!13 = !{i32 999999, i64 1, i32 12}

!20 = !{!"function_entry_count", i64 1}
!21 = !{!"branch_weights", i32 1000000, i32 1}
!22 = !{!"branch_weights", i32 1000, i32 1000}
!23 = !{!"branch_weights", i32 1000, i32 999000}
!24 = !{!"branch_weights", i32 500000, i32 500000}
