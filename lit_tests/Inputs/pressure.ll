; More values live at once than x86-64 has registers, in a loop.
target triple = "x86_64-unknown-linux-gnu"

define void @pressure(ptr %in, ptr %out, i64 %n) {
entry:
  br label %loop

loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p0 = getelementptr i64, ptr %in, i64 0
  %v0 = load volatile i64, ptr %p0
  %p1 = getelementptr i64, ptr %in, i64 1
  %v1 = load volatile i64, ptr %p1
  %p2 = getelementptr i64, ptr %in, i64 2
  %v2 = load volatile i64, ptr %p2
  %p3 = getelementptr i64, ptr %in, i64 3
  %v3 = load volatile i64, ptr %p3
  %p4 = getelementptr i64, ptr %in, i64 4
  %v4 = load volatile i64, ptr %p4
  %p5 = getelementptr i64, ptr %in, i64 5
  %v5 = load volatile i64, ptr %p5
  %p6 = getelementptr i64, ptr %in, i64 6
  %v6 = load volatile i64, ptr %p6
  %p7 = getelementptr i64, ptr %in, i64 7
  %v7 = load volatile i64, ptr %p7
  %p8 = getelementptr i64, ptr %in, i64 8
  %v8 = load volatile i64, ptr %p8
  %p9 = getelementptr i64, ptr %in, i64 9
  %v9 = load volatile i64, ptr %p9
  %p10 = getelementptr i64, ptr %in, i64 10
  %v10 = load volatile i64, ptr %p10
  %p11 = getelementptr i64, ptr %in, i64 11
  %v11 = load volatile i64, ptr %p11
  %p12 = getelementptr i64, ptr %in, i64 12
  %v12 = load volatile i64, ptr %p12
  %p13 = getelementptr i64, ptr %in, i64 13
  %v13 = load volatile i64, ptr %p13
  %p14 = getelementptr i64, ptr %in, i64 14
  %v14 = load volatile i64, ptr %p14
  %p15 = getelementptr i64, ptr %in, i64 15
  %v15 = load volatile i64, ptr %p15
  %p16 = getelementptr i64, ptr %in, i64 16
  %v16 = load volatile i64, ptr %p16
  %p17 = getelementptr i64, ptr %in, i64 17
  %v17 = load volatile i64, ptr %p17
  %p18 = getelementptr i64, ptr %in, i64 18
  %v18 = load volatile i64, ptr %p18
  %p19 = getelementptr i64, ptr %in, i64 19
  %v19 = load volatile i64, ptr %p19
  %p20 = getelementptr i64, ptr %in, i64 20
  %v20 = load volatile i64, ptr %p20
  %p21 = getelementptr i64, ptr %in, i64 21
  %v21 = load volatile i64, ptr %p21
  %p22 = getelementptr i64, ptr %in, i64 22
  %v22 = load volatile i64, ptr %p22
  %p23 = getelementptr i64, ptr %in, i64 23
  %v23 = load volatile i64, ptr %p23
  %s0 = add i64 %v0, %v1
  %q0 = getelementptr i64, ptr %out, i64 0
  store volatile i64 %s0, ptr %q0
  %s1 = add i64 %v1, %v2
  %q1 = getelementptr i64, ptr %out, i64 1
  store volatile i64 %s1, ptr %q1
  %s2 = add i64 %v2, %v3
  %q2 = getelementptr i64, ptr %out, i64 2
  store volatile i64 %s2, ptr %q2
  %s3 = add i64 %v3, %v4
  %q3 = getelementptr i64, ptr %out, i64 3
  store volatile i64 %s3, ptr %q3
  %s4 = add i64 %v4, %v5
  %q4 = getelementptr i64, ptr %out, i64 4
  store volatile i64 %s4, ptr %q4
  %s5 = add i64 %v5, %v6
  %q5 = getelementptr i64, ptr %out, i64 5
  store volatile i64 %s5, ptr %q5
  %s6 = add i64 %v6, %v7
  %q6 = getelementptr i64, ptr %out, i64 6
  store volatile i64 %s6, ptr %q6
  %s7 = add i64 %v7, %v8
  %q7 = getelementptr i64, ptr %out, i64 7
  store volatile i64 %s7, ptr %q7
  %s8 = add i64 %v8, %v9
  %q8 = getelementptr i64, ptr %out, i64 8
  store volatile i64 %s8, ptr %q8
  %s9 = add i64 %v9, %v10
  %q9 = getelementptr i64, ptr %out, i64 9
  store volatile i64 %s9, ptr %q9
  %s10 = add i64 %v10, %v11
  %q10 = getelementptr i64, ptr %out, i64 10
  store volatile i64 %s10, ptr %q10
  %s11 = add i64 %v11, %v12
  %q11 = getelementptr i64, ptr %out, i64 11
  store volatile i64 %s11, ptr %q11
  %s12 = add i64 %v12, %v13
  %q12 = getelementptr i64, ptr %out, i64 12
  store volatile i64 %s12, ptr %q12
  %s13 = add i64 %v13, %v14
  %q13 = getelementptr i64, ptr %out, i64 13
  store volatile i64 %s13, ptr %q13
  %s14 = add i64 %v14, %v15
  %q14 = getelementptr i64, ptr %out, i64 14
  store volatile i64 %s14, ptr %q14
  %s15 = add i64 %v15, %v16
  %q15 = getelementptr i64, ptr %out, i64 15
  store volatile i64 %s15, ptr %q15
  %s16 = add i64 %v16, %v17
  %q16 = getelementptr i64, ptr %out, i64 16
  store volatile i64 %s16, ptr %q16
  %s17 = add i64 %v17, %v18
  %q17 = getelementptr i64, ptr %out, i64 17
  store volatile i64 %s17, ptr %q17
  %s18 = add i64 %v18, %v19
  %q18 = getelementptr i64, ptr %out, i64 18
  store volatile i64 %s18, ptr %q18
  %s19 = add i64 %v19, %v20
  %q19 = getelementptr i64, ptr %out, i64 19
  store volatile i64 %s19, ptr %q19
  %s20 = add i64 %v20, %v21
  %q20 = getelementptr i64, ptr %out, i64 20
  store volatile i64 %s20, ptr %q20
  %s21 = add i64 %v21, %v22
  %q21 = getelementptr i64, ptr %out, i64 21
  store volatile i64 %s21, ptr %q21
  %s22 = add i64 %v22, %v23
  %q22 = getelementptr i64, ptr %out, i64 22
  store volatile i64 %s22, ptr %q22
  %s23 = add i64 %v23, %v0
  %q23 = getelementptr i64, ptr %out, i64 23
  store volatile i64 %s23, ptr %q23
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %exit, label %loop

exit:
  ret void
}
