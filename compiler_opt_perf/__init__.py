# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine-learned compiler optimisation that sees what the hardware saw."""

__version__ = "0.1.0"
