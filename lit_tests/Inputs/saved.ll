; Two values live across a call that hardly runs: in callee-saved registers, or on the stack around
; the call.
target triple = "x86_64-unknown-linux-gnu"

define i64 @saved(i64 %x, i64 %y) !dbg !3 {
entry:
  %is_zero = icmp eq i64 %x, 0, !dbg !6
  br i1 %is_zero, label %cold, label %exit, !prof !5, !dbg !6

cold:
  call void @rare(), !dbg !7
  br label %exit, !dbg !7

exit:
  %sum = mul i64 %x, %y, !dbg !8
  ret i64 %sum, !dbg !8
}

declare void @rare()

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "saved.c", directory: "/src")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = distinct !DISubprogram(name: "saved", linkageName: "saved", file: !1, line: 10, unit: !0, type: !4, spFlags: DISPFlagDefinition)
!4 = !DISubroutineType(types: !{})
!5 = !{!"branch_weights", i32 1, i32 63}
!6 = !DILocation(line: 11, scope: !3)
!7 = !DILocation(line: 12, scope: !3)
!8 = !DILocation(line: 13, scope: !3)
