# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tries the ways to compile a user's own program, and says which one to take."""
