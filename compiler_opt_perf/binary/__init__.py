# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads machine code: ELF files, address maps, instructions and source locations."""
