# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block traces: the machine basic blocks that a program executed, in order."""
