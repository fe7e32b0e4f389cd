target triple = "x86_64-unknown-linux-gnu"

define i64 @five(i64 %x) {
entry:
  %is_zero = icmp eq i64 %x, 0
  br i1 %is_zero, label %cold, label %exit, !prof !0

cold:
  call void @rare(i64 %x)
  call void @rare(i64 %x)
  call void @rare(i64 %x)
  call void @rare(i64 %x)
  call void @rare(i64 %x)
  br label %exit

exit:
  %sum = mul i64 %x, %x
  ret i64 %sum
}

declare void @rare(i64)

!0 = !{!"branch_weights", i32 1, i32 63}
