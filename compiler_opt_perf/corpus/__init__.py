# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What policies are trained and judged on: IR modules with command lines, of real programs."""
