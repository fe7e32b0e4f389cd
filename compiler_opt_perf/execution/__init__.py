# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Running things: commands with limits, work over processes, files that are never half-written."""
