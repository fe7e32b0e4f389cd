# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Algorithms of training, a file each: settings, the update rule with its source, the stage."""
