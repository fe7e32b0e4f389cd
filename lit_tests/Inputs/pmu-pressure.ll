; Loads of 24 values through %p, live at once, each then combined with %k; every second load is on line
; 1 of the function, and the others on line 2. Line 3 is the loop's branch, whose condition %k is in.
target triple = "x86_64-unknown-linux-gnu"

define i64 @pressure(ptr %p, ptr %out, i64 %k) !dbg !4 {
entry:
  br label %loop, !dbg !10

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p0 = getelementptr i64, ptr %p, i64 0
  %v0 = load volatile i64, ptr %p0, !dbg !11
  %p1 = getelementptr i64, ptr %p, i64 1
  %v1 = load volatile i64, ptr %p1, !dbg !12
  %p2 = getelementptr i64, ptr %p, i64 2
  %v2 = load volatile i64, ptr %p2, !dbg !11
  %p3 = getelementptr i64, ptr %p, i64 3
  %v3 = load volatile i64, ptr %p3, !dbg !12
  %p4 = getelementptr i64, ptr %p, i64 4
  %v4 = load volatile i64, ptr %p4, !dbg !11
  %p5 = getelementptr i64, ptr %p, i64 5
  %v5 = load volatile i64, ptr %p5, !dbg !12
  %p6 = getelementptr i64, ptr %p, i64 6
  %v6 = load volatile i64, ptr %p6, !dbg !11
  %p7 = getelementptr i64, ptr %p, i64 7
  %v7 = load volatile i64, ptr %p7, !dbg !12
  %p8 = getelementptr i64, ptr %p, i64 8
  %v8 = load volatile i64, ptr %p8, !dbg !11
  %p9 = getelementptr i64, ptr %p, i64 9
  %v9 = load volatile i64, ptr %p9, !dbg !12
  %p10 = getelementptr i64, ptr %p, i64 10
  %v10 = load volatile i64, ptr %p10, !dbg !11
  %p11 = getelementptr i64, ptr %p, i64 11
  %v11 = load volatile i64, ptr %p11, !dbg !12
  %p12 = getelementptr i64, ptr %p, i64 12
  %v12 = load volatile i64, ptr %p12, !dbg !11
  %p13 = getelementptr i64, ptr %p, i64 13
  %v13 = load volatile i64, ptr %p13, !dbg !12
  %p14 = getelementptr i64, ptr %p, i64 14
  %v14 = load volatile i64, ptr %p14, !dbg !11
  %p15 = getelementptr i64, ptr %p, i64 15
  %v15 = load volatile i64, ptr %p15, !dbg !12
  %p16 = getelementptr i64, ptr %p, i64 16
  %v16 = load volatile i64, ptr %p16, !dbg !11
  %p17 = getelementptr i64, ptr %p, i64 17
  %v17 = load volatile i64, ptr %p17, !dbg !12
  %p18 = getelementptr i64, ptr %p, i64 18
  %v18 = load volatile i64, ptr %p18, !dbg !11
  %p19 = getelementptr i64, ptr %p, i64 19
  %v19 = load volatile i64, ptr %p19, !dbg !12
  %p20 = getelementptr i64, ptr %p, i64 20
  %v20 = load volatile i64, ptr %p20, !dbg !11
  %p21 = getelementptr i64, ptr %p, i64 21
  %v21 = load volatile i64, ptr %p21, !dbg !12
  %p22 = getelementptr i64, ptr %p, i64 22
  %v22 = load volatile i64, ptr %p22, !dbg !11
  %p23 = getelementptr i64, ptr %p, i64 23
  %v23 = load volatile i64, ptr %p23, !dbg !12
  %x0 = xor i64 %v0, %k, !dbg !10
  store volatile i64 %x0, ptr %out, !dbg !10
  %x1 = xor i64 %v1, %k, !dbg !10
  store volatile i64 %x1, ptr %out, !dbg !10
  %x2 = xor i64 %v2, %k, !dbg !10
  store volatile i64 %x2, ptr %out, !dbg !10
  %x3 = xor i64 %v3, %k, !dbg !10
  store volatile i64 %x3, ptr %out, !dbg !10
  %x4 = xor i64 %v4, %k, !dbg !10
  store volatile i64 %x4, ptr %out, !dbg !10
  %x5 = xor i64 %v5, %k, !dbg !10
  store volatile i64 %x5, ptr %out, !dbg !10
  %x6 = xor i64 %v6, %k, !dbg !10
  store volatile i64 %x6, ptr %out, !dbg !10
  %x7 = xor i64 %v7, %k, !dbg !10
  store volatile i64 %x7, ptr %out, !dbg !10
  %x8 = xor i64 %v8, %k, !dbg !10
  store volatile i64 %x8, ptr %out, !dbg !10
  %x9 = xor i64 %v9, %k, !dbg !10
  store volatile i64 %x9, ptr %out, !dbg !10
  %x10 = xor i64 %v10, %k, !dbg !10
  store volatile i64 %x10, ptr %out, !dbg !10
  %x11 = xor i64 %v11, %k, !dbg !10
  store volatile i64 %x11, ptr %out, !dbg !10
  %x12 = xor i64 %v12, %k, !dbg !10
  store volatile i64 %x12, ptr %out, !dbg !10
  %x13 = xor i64 %v13, %k, !dbg !10
  store volatile i64 %x13, ptr %out, !dbg !10
  %x14 = xor i64 %v14, %k, !dbg !10
  store volatile i64 %x14, ptr %out, !dbg !10
  %x15 = xor i64 %v15, %k, !dbg !10
  store volatile i64 %x15, ptr %out, !dbg !10
  %x16 = xor i64 %v16, %k, !dbg !10
  store volatile i64 %x16, ptr %out, !dbg !10
  %x17 = xor i64 %v17, %k, !dbg !10
  store volatile i64 %x17, ptr %out, !dbg !10
  %x18 = xor i64 %v18, %k, !dbg !10
  store volatile i64 %x18, ptr %out, !dbg !10
  %x19 = xor i64 %v19, %k, !dbg !10
  store volatile i64 %x19, ptr %out, !dbg !10
  %x20 = xor i64 %v20, %k, !dbg !10
  store volatile i64 %x20, ptr %out, !dbg !10
  %x21 = xor i64 %v21, %k, !dbg !10
  store volatile i64 %x21, ptr %out, !dbg !10
  %x22 = xor i64 %v22, %k, !dbg !10
  store volatile i64 %x22, ptr %out, !dbg !10
  %x23 = xor i64 %v23, %k, !dbg !10
  store volatile i64 %x23, ptr %out, !dbg !10
  store volatile i64 %v0, ptr %out, !dbg !10
  store volatile i64 %v1, ptr %out, !dbg !10
  store volatile i64 %v2, ptr %out, !dbg !10
  store volatile i64 %v3, ptr %out, !dbg !10
  store volatile i64 %v4, ptr %out, !dbg !10
  store volatile i64 %v5, ptr %out, !dbg !10
  store volatile i64 %v6, ptr %out, !dbg !10
  store volatile i64 %v7, ptr %out, !dbg !10
  store volatile i64 %v8, ptr %out, !dbg !10
  store volatile i64 %v9, ptr %out, !dbg !10
  store volatile i64 %v10, ptr %out, !dbg !10
  store volatile i64 %v11, ptr %out, !dbg !10
  store volatile i64 %v12, ptr %out, !dbg !10
  store volatile i64 %v13, ptr %out, !dbg !10
  store volatile i64 %v14, ptr %out, !dbg !10
  store volatile i64 %v15, ptr %out, !dbg !10
  store volatile i64 %v16, ptr %out, !dbg !10
  store volatile i64 %v17, ptr %out, !dbg !10
  store volatile i64 %v18, ptr %out, !dbg !10
  store volatile i64 %v19, ptr %out, !dbg !10
  store volatile i64 %v20, ptr %out, !dbg !10
  store volatile i64 %v21, ptr %out, !dbg !10
  store volatile i64 %v22, ptr %out, !dbg !10
  store volatile i64 %v23, ptr %out, !dbg !10
  %next = add i64 %i, 1, !dbg !10
  %more = icmp ult i64 %next, %k, !dbg !10
  br i1 %more, label %loop, label %end, !dbg !13

end:
  ret i64 %k, !dbg !10
}

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug, debugInfoForProfiling: true)
!1 = !DIFile(filename: "a.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 5}
!4 = distinct !DISubprogram(name: "pressure", scope: !1, file: !1, line: 10, type: !5, spFlags: DISPFlagDefinition, unit: !0)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!10 = !DILocation(line: 19, scope: !4)
!11 = !DILocation(line: 11, scope: !4)
!12 = !DILocation(line: 12, scope: !4)
!13 = !DILocation(line: 13, scope: !4)
