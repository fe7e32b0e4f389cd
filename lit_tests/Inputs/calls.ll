; Two call sites: a callee of one basic block that is large for the default policy at -Oz, and a
; callee of three blocks that is small.
target triple = "x86_64-unknown-linux-gnu"

declare void @sink(i32)

define void @one_block(i32 %x) {
  call void @sink(i32 %x)
  call void @sink(i32 %x)
  call void @sink(i32 %x)
  call void @sink(i32 %x)
  ret void
}

define internal void @three_blocks(i32 %x) {
  %positive = icmp sgt i32 %x, 0
  br i1 %positive, label %then, label %exit

then:
  call void @sink(i32 %x)
  br label %exit

exit:
  ret void
}

define void @always(i32 %x) alwaysinline {
  call void @sink(i32 %x)
  ret void
}

define void @caller(i32 %x) {
  call void @one_block(i32 %x)
  call void @three_blocks(i32 %x)
  call void @always(i32 %x)
  ret void
}
