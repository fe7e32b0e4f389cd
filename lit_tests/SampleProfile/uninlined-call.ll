; PATCH: [SampleProfile] Count calls that were inlined in the profiled program
;
; A call that was inlined in the profiled program and stays a call here was executed as often as the inlinee was entered.

; RUN: rm -rf %t && split-file %s %t && cd %t
; RUN: opt -passes=sample-profile -sample-profile-file=profile.txt -S a.ll | FileCheck a.ll
; RUN: opt -passes=sample-profile -sample-profile-file=profile.txt -S a.ll -sample-profile-count-uninlined-calls=false \
; RUN:   | FileCheck a.ll --check-prefix=ZERO
; RUN: llvm-profdata merge --sample --extbinary --use-md5 profile.txt -o profile.md5
; RUN: opt -passes=sample-profile -sample-profile-file=profile.md5 -S a.ll | FileCheck a.ll

;--- profile.txt
hot:10000000:1
 1: 10000000
warm:1500:499
 1: 500
 2: size:1000
  1: 500
  2: 500
refused:29980000:9989999
 1: 9990000
 2: large:19990000
  1: 9990000
  2: 10000000
never:500:499
 1: 500
 2: size:0
  1: 0

;--- a.ll
define i32 @size(ptr %p) #0 !dbg !10 {
  %value = load i32, ptr %p, !dbg !11
  ret i32 %value, !dbg !12
}

define i32 @large(ptr %p) #1 !dbg !20 {
  %value = load i32, ptr %p, !dbg !21
  ret i32 %value, !dbg !22
}

; The loader does not inline a call that is not hot. All of the line's counts are the inlinee's.
; CHECK-LABEL: @warm(
; CHECK:         br i1 %none, label %no, label %yes, {{.*}}!prof ![[WARM:[0-9]+]]
; CHECK:         call i32 @size({{.*}}!prof ![[CALL:[0-9]+]]
; ZERO-LABEL: @warm(
; ZERO:         br i1 %none, label %no, label %yes, {{.*}}!prof ![[WARM:[0-9]+]]
; ZERO:         call i32 @size(ptr %p), !dbg !{{[0-9]+$}}
define i32 @warm(ptr %p) #0 !dbg !30 {
  %none = icmp eq ptr %p, null, !dbg !31
  br i1 %none, label %no, label %yes, !dbg !31
no:
  ret i32 0
yes:
  %value = call i32 @size(ptr %p), !dbg !32
  ret i32 %value
}

; A hot call that cannot be inlined.
; CHECK-LABEL: @refused(
; CHECK:         br i1 %none, label %no, label %yes, {{.*}}!prof ![[REFUSED:[0-9]+]]
; ZERO-LABEL: @refused(
; ZERO:         br i1 %none, label %no, label %yes, {{.*}}!prof ![[REFUSED:[0-9]+]]
define i32 @refused(ptr %p) #0 !dbg !40 {
  %none = icmp eq ptr %p, null, !dbg !41
  br i1 %none, label %no, label %yes, !dbg !41
no:
  ret i32 0
yes:
  %value = call i32 @large(ptr %p), !dbg !42
  ret i32 %value
}

; An inlinee without samples says that the call was not executed.
; CHECK-LABEL: @never(
; CHECK:         br i1 %none, label %no, label %yes, {{.*}}!prof ![[NEVER:[0-9]+]]
define i32 @never(ptr %p) #0 !dbg !50 {
  %none = icmp eq ptr %p, null, !dbg !51
  br i1 %none, label %no, label %yes, !dbg !51
no:
  ret i32 0
yes:
  %value = call i32 @size(ptr %p), !dbg !52
  ret i32 %value
}

define void @hot() #0 !dbg !60 {
  ret void, !dbg !61
}

; CHECK-DAG: ![[WARM]] = !{!"branch_weights", i32 1, i32 501}
; CHECK-DAG: ![[CALL]] = !{!"branch_weights", i32 500}
; CHECK-DAG: ![[REFUSED]] = !{!"branch_weights", i32 1, i32 9990001}
; CHECK-DAG: ![[NEVER]] = !{!"branch_weights", i32 501, i32 1}
; ZERO-DAG: ![[WARM]] = !{!"branch_weights", i32 501, i32 1}
; ZERO-DAG: ![[REFUSED]] = !{!"branch_weights", i32 9990001, i32 1}

attributes #0 = { "use-sample-profile" }
attributes #1 = { noinline "use-sample-profile" }

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: NoDebug)
!1 = !DIFile(filename: "a.c", directory: "")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !DISubroutineType(types: !{})
!10 = distinct !DISubprogram(name: "size", scope: !1, file: !1, line: 1, type: !3, unit: !0)
!11 = !DILocation(line: 2, scope: !10)
!12 = !DILocation(line: 3, scope: !10)
!20 = distinct !DISubprogram(name: "large", scope: !1, file: !1, line: 5, type: !3, unit: !0)
!21 = !DILocation(line: 6, scope: !20)
!22 = !DILocation(line: 7, scope: !20)
!30 = distinct !DISubprogram(name: "warm", scope: !1, file: !1, line: 10, type: !3, unit: !0)
!31 = !DILocation(line: 11, scope: !30)
!32 = !DILocation(line: 12, scope: !30)
!40 = distinct !DISubprogram(name: "refused", scope: !1, file: !1, line: 20, type: !3, unit: !0)
!41 = !DILocation(line: 21, scope: !40)
!42 = !DILocation(line: 22, scope: !40)
!50 = distinct !DISubprogram(name: "never", scope: !1, file: !1, line: 30, type: !3, unit: !0)
!51 = !DILocation(line: 31, scope: !50)
!52 = !DILocation(line: 32, scope: !50)
!60 = distinct !DISubprogram(name: "hot", scope: !1, file: !1, line: 40, type: !3, unit: !0)
!61 = !DILocation(line: 41, scope: !60)
!62 = !DILocation(line: 42, scope: !60)
