# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluators: the cost of a compilation result."""
