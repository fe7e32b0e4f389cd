# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluators: what a compilation result costs."""
