# A function of two blocks, and one with an instruction that LLVM's model of Skylake doesn't know and a
# byte that is none.

.include "blocks.s"
.text
.globl f, odd
.type f,@function
.type odd,@function
.Lf:
f:
  addq $1, %rax
.Lf1:
  addq $1, %rcx
  retq
.Lodd:
odd:
  vpaddd %zmm0, %zmm0, %zmm0
  addq $1, %rax
  .byte 0x06
.Lend:
BLOCKS f, 2
BLOCK 0, .Lf, .Lf1
BLOCK 1, .Lf1, .Lodd, 1
BLOCKS odd, 1
BLOCK 0, .Lodd, .Lend
