# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Studies: measurements of this project on real programs, behind docs/results.md."""
