.include "blocks.s"
.text
.globl chain, apart
.type chain,@function
.type apart,@function
.Lchain:
chain:
  .rept 12
  addq $1, %rax
  .endr
.Lapart:
apart:
  addq $1, %rax
  addq $1, %rbx
  addq $1, %rcx
  addq $1, %rdx
  addq $1, %rsi
  addq $1, %rdi
  addq $1, %r8
  addq $1, %r9
  addq $1, %r10
  addq $1, %r11
  addq $1, %r12
  addq $1, %r13
.Lend:
BLOCKS chain, 1
BLOCK 0, .Lchain, .Lapart
BLOCKS apart, 1
BLOCK 0, .Lapart, .Lend
