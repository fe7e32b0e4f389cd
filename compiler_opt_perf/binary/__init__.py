# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code: ELF files, the blocks of their address maps, instructions, source locations."""
