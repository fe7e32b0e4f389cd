; foo begins at line 10, bar at line 30 and other at line 50 of foo.c; foo has calls of bar inlined.
target triple = "x86_64-unknown-linux-gnu"

define i32 @foo(ptr %p, i1 %c) !dbg !4 {
  %line1 = load volatile i32, ptr %p, !dbg !10
  %line2 = load volatile i32, ptr %p, !dbg !11
  %line2.3 = load volatile i32, ptr %p, !dbg !12
  %bar1 = load volatile i32, ptr %p, !dbg !14
  %bar2 = load volatile i32, ptr %p, !dbg !15
  %elsewhere = load volatile i32, ptr %p, !dbg !17
  %cold = load volatile i32, ptr %p, !dbg !18
  %line0 = load volatile i32, ptr %p, !dbg !19
  %nowhere = load volatile i32, ptr %p
  store volatile i32 %line1, ptr %p, !dbg !10
  br i1 %c, label %then, label %end, !dbg !20
then:
  call void @other(ptr %p), !dbg !13
  br label %end, !dbg !20
end:
  ret i32 %line1, !dbg !20
}

define void @other(ptr %p) !dbg !6 {
  %a = load volatile i32, ptr %p, !dbg !21
  ret void, !dbg !21
}

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}

!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug, debugInfoForProfiling: true)
!1 = !DIFile(filename: "foo.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 5}
!4 = distinct !DISubprogram(name: "foo", scope: !1, file: !1, line: 10, type: !7, spFlags: DISPFlagDefinition, unit: !0)
!5 = distinct !DISubprogram(name: "bar", scope: !1, file: !1, line: 30, type: !7, spFlags: DISPFlagDefinition, unit: !0)
!6 = distinct !DISubprogram(name: "other", scope: !1, file: !1, line: 50, type: !7, spFlags: DISPFlagDefinition, unit: !0)
!7 = !DISubroutineType(types: !8)
!8 = !{null}
; The base discriminator 3 is encoded as 6.
!9 = !DILexicalBlockFile(scope: !4, file: !1, discriminator: 6)
!10 = !DILocation(line: 11, scope: !4)
!11 = !DILocation(line: 12, scope: !4)
!12 = !DILocation(line: 12, scope: !9)
!13 = distinct !DILocation(line: 13, scope: !4)
!14 = !DILocation(line: 31, scope: !5, inlinedAt: !13)
!15 = !DILocation(line: 32, scope: !5, inlinedAt: !13)
!16 = distinct !DILocation(line: 16, scope: !4)
!17 = !DILocation(line: 31, scope: !5, inlinedAt: !16)
!18 = !DILocation(line: 19, scope: !4)
!19 = !DILocation(line: 0, scope: !4)
!20 = !DILocation(line: 15, scope: !4)
!21 = !DILocation(line: 51, scope: !6)
