# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block traces: which machine blocks a program executed, in order."""
