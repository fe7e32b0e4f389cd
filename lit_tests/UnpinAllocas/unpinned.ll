; PATCH: [UnpinAllocas] Pass copies of locals to cold calls
;
; Cold calls are passed a copy of a local: SROA can promote it.

; RUN: rm -rf %t && split-file %s %t && cd %t
; RUN: cat a.ll profile.ll > with.ll
; RUN: opt -passes='require<profile-summary>,function(unpin-allocas)' -pass-remarks=unpin-allocas -S with.ll 2>remarks | FileCheck a.ll
; RUN: FileCheck --check-prefix=REMARK %s --input-file=remarks
; RUN: opt -passes='require<profile-summary>,function(unpin-allocas,sroa)' -S with.ll | FileCheck a.ll --check-prefix=SROA
; RUN: opt -passes='require<profile-summary>,function(unpin-allocas,unpin-allocas)' -S with.ll | FileCheck a.ll

; REMARK: remark: {{.*}} cold calls are passed a copy of a local
; REMARK-COUNT-5: remark:
; REMARK-NOT: remark:

;--- a.ll
declare void @captures(ptr)
declare void @changes(i32, ptr captures(none))
declare void @reads(ptr readonly captures(none))
declare void @llvm.lifetime.start.p0(ptr captures(none))
declare void @llvm.lifetime.end.p0(ptr captures(none))
declare i32 @__gxx_personality_v0(...)

; Nothing looks at the local between the call and the end of its lifetime, so the callee may keep the address. The copy
; lives as long as the local.
; CHECK-LABEL: @captured(
; CHECK:         %local.copy = alloca i32, align 4
; CHECK:       loop:
; CHECK:         lifetime.start.p0(ptr %local)
; CHECK-NEXT:    lifetime.start.p0(ptr %local.copy)
; CHECK:       cold:
; CHECK-NEXT:    call void @llvm.memcpy.p0.p0.i64(ptr align 4 %local.copy, ptr align 4 %local, i64 4, i1 false)
; CHECK-NEXT:    call void @captures(ptr %local.copy)
; CHECK-NEXT:    br label %next
; CHECK:       next:
; CHECK-NEXT:    lifetime.end.p0(ptr %local)
; CHECK-NEXT:    lifetime.end.p0(ptr %local.copy)
; SROA-LABEL: @captured(
; SROA:         %[[COPY:.*]] = alloca i32, align 4
; SROA-NOT:     alloca
; SROA:       cold:
; SROA-NEXT:    store i32 %i, ptr %[[COPY]]
; SROA-NEXT:    call void @captures(ptr %[[COPY]])
; SROA:       ret i32
define i32 @captured(i32 %n) !prof !1 {
entry:
  %local = alloca i32, align 4
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  %sum = phi i32 [ 0, %entry ], [ %sum.next, %next ]
  call void @llvm.lifetime.start.p0(ptr %local)
  store i32 %i, ptr %local
  %value = load i32, ptr %local
  %sum.next = add i32 %sum, %value
  %rare = icmp eq i32 %i, 123456
  br i1 %rare, label %cold, label %next, !prof !2
cold:
  call void @captures(ptr %local)
  br label %next
next:
  call void @llvm.lifetime.end.p0(ptr %local)
  %i.next = add i32 %i, 1
  %done = icmp eq i32 %i.next, %n
  br i1 %done, label %exit, label %loop, !prof !3
exit:
  ret i32 %sum.next
}

; The local is read afterwards: what the callee wrote is copied back. Both arguments are in the same copy.
; CHECK-LABEL: @changed(
; CHECK:       cold:
; CHECK-NEXT:    call void @llvm.memcpy.p0.p0.i64(ptr align 8 %local.copy, ptr align 8 %local, i64 8, i1 false)
; CHECK-NEXT:    %[[HIGH:.*]] = getelementptr i8, ptr %local.copy, i64 4
; CHECK-NEXT:    call void @two(ptr %local.copy, ptr %[[HIGH]])
; CHECK-NEXT:    call void @llvm.memcpy.p0.p0.i64(ptr align 8 %local, ptr align 8 %local.copy, i64 8, i1 false)
; CHECK-NEXT:    br label %next
; SROA-LABEL: @changed(
; SROA:         %[[COPY:.*]] = alloca i64, align 8
; SROA-NOT:     alloca
; SROA:       loop:
; SROA-NOT:     load
; SROA:       cold:
declare void @two(ptr captures(none), ptr captures(none))
define i64 @changed(i32 %n) !prof !1 {
entry:
  %local = alloca i64, align 8
  store i64 0, ptr %local
  %high = getelementptr i8, ptr %local, i64 4
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  %value = load i64, ptr %local
  %more = add i64 %value, 3
  store i64 %more, ptr %local
  %rare = icmp eq i32 %i, 123456
  br i1 %rare, label %cold, label %next, !prof !2
cold:
  call void @two(ptr %local, ptr %high)
  br label %next
next:
  %i.next = add i32 %i, 1
  %done = icmp eq i32 %i.next, %n
  br i1 %done, label %exit, label %loop, !prof !3
exit:
  %result = load i64, ptr %local
  ret i64 %result
}

; A callee that only reads leaves nothing to copy back, also where the call may unwind to a reader.
; CHECK-LABEL: @only_read(
; CHECK:       cold:
; CHECK-NEXT:    call void @llvm.memcpy{{.*}}(ptr align 4 %local.copy, ptr align 4 %local,
; CHECK-NEXT:    invoke void @reads(ptr %local.copy)
; CHECK-NOT:     memcpy
; CHECK:       ret i32
define i32 @only_read(i32 %n) personality ptr @__gxx_personality_v0 !prof !1 {
entry:
  %local = alloca i32, align 4
  store i32 0, ptr %local
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  store i32 %i, ptr %local
  %rare = icmp eq i32 %i, 123456
  br i1 %rare, label %cold, label %next, !prof !2
cold:
  invoke void @reads(ptr %local) to label %next unwind label %unwound
unwound:
  %pad = landingpad { ptr, i32 } cleanup
  %kept = load i32, ptr %local
  call void @sink(i32 %kept)
  resume { ptr, i32 } %pad
next:
  %i.next = add i32 %i, 1
  %done = icmp eq i32 %i.next, %n
  br i1 %done, label %exit, label %loop, !prof !3
exit:
  %result = load i32, ptr %local
  ret i32 %result
}
declare void @sink(i32)

; Where an invoke ends normally, the copy is copied back.
; CHECK-LABEL: @invoked(
; CHECK:         invoke void @changes(i32 7, ptr %local.copy)
; CHECK:       returned:
; CHECK-NEXT:    call void @llvm.memcpy{{.*}}(ptr align 4 %local, ptr align 4 %local.copy,
define i32 @invoked(i32 %n) personality ptr @__gxx_personality_v0 !prof !1 {
entry:
  %local = alloca i32, align 4
  store i32 0, ptr %local
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  store i32 %i, ptr %local
  %rare = icmp eq i32 %i, 123456
  br i1 %rare, label %cold, label %next, !prof !2
cold:
  invoke void @changes(i32 7, ptr %local) to label %returned unwind label %unwound
unwound:
  %pad = landingpad { ptr, i32 } cleanup
  resume { ptr, i32 } %pad
returned:
  br label %next
next:
  %i.next = add i32 %i, 1
  %done = icmp eq i32 %i.next, %n
  br i1 %done, label %exit, label %loop, !prof !3
exit:
  %result = load i32, ptr %local
  ret i32 %result
}

; The function ends after the call: the callee may keep the address, as the lifetime ends there.
; CHECK-LABEL: @returns_after(
; CHECK:         call void @captures(ptr %local.copy)
; CHECK-NEXT:    ret i32 0
define i32 @returns_after(i32 %n) !prof !1 {
entry:
  %local = alloca i32, align 4
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  store i32 %i, ptr %local
  %rare = icmp eq i32 %i, 123456
  br i1 %rare, label %cold, label %next, !prof !2
cold:
  call void @captures(ptr %local)
  ret i32 0
next:
  %i.next = add i32 %i, 1
  %done = icmp eq i32 %i.next, %n
  br i1 %done, label %exit, label %loop, !prof !3
exit:
  %result = load i32, ptr %local
  ret i32 %result
}

; Two cold calls share the copy; memory intrinsics are accesses as well.
; CHECK-LABEL: @twice(
; CHECK:         call void @changes(i32 1, ptr %local.copy)
; CHECK-NEXT:    call void @llvm.memcpy{{.*}}(ptr align 4 %local, ptr align 4 %local.copy, i64 12,
; CHECK-NEXT:    call void @llvm.memcpy{{.*}}(ptr align 4 %local.copy, ptr align 4 %local, i64 12,
; CHECK-NEXT:    call void @changes(i32 2, ptr %local.copy)
define void @twice(i32 %n, ptr %to) !prof !1 {
entry:
  %local = alloca { i32, i32, i32 }, align 4
  call void @llvm.memset.p0.i64(ptr %local, i8 0, i64 12, i1 false)
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  store i32 %i, ptr %local
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %local, i64 12, i1 false)
  %rare = icmp eq i32 %i, 123456
  br i1 %rare, label %cold, label %next, !prof !2
cold:
  call void @changes(i32 1, ptr %local)
  call void @changes(i32 2, ptr %local)
  br label %next
next:
  %i.next = add i32 %i, 1
  %done = icmp eq i32 %i.next, %n
  br i1 %done, label %exit, label %loop, !prof !3
exit:
  ret void
}

;--- profile.ll
!llvm.module.flags = !{!10}
!1 = !{!"function_entry_count", i64 1}
!2 = !{!"branch_weights", i32 0, i32 1000}
!3 = !{!"branch_weights", i32 1, i32 999}
!10 = !{i32 1, !"ProfileSummary", !11}
!11 = !{!12, !13, !14, !15, !16, !17, !18, !19}
!12 = !{!"ProfileFormat", !"InstrProf"}
!13 = !{!"TotalCount", i64 10000}
!14 = !{!"MaxCount", i64 1000}
!15 = !{!"MaxInternalCount", i64 1000}
!16 = !{!"MaxFunctionCount", i64 1000}
!17 = !{!"NumCounts", i64 20}
!18 = !{!"NumFunctions", i64 3}
!19 = !{!"DetailedSummary", !20}
!20 = !{!21, !22, !23}
!21 = !{i32 10000, i64 1000, i32 1}
!22 = !{i32 999000, i64 100, i32 10}
!23 = !{i32 999999, i64 1, i32 20}
