# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Corpora for training and judging policies: IR modules of real programs with command lines."""
