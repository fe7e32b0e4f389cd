# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cost models that are learned from measured blocks."""
