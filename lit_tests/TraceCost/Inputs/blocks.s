# Macros for the basic block address map that -fbasic-block-address-map gives a function: BLOCKS
# names the function (whose first byte .LNAME labels) and counts its blocks, one BLOCK each follows:
# id, first byte, end, metadata (1: returns). Blocks follow one another without a gap.

.macro BLOCKS function, count
  .section .llvm_bb_addr_map,"o",@llvm_bb_addr_map,.text
  .byte 2, 0
  .quad .L\function
  .byte \count
.endm

.macro BLOCK id, begin, end, metadata=0
  .uleb128 \id
  .byte 0
  .uleb128 \end - \begin
  .byte \metadata
.endm
