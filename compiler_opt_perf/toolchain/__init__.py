# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fetches, patches and builds the compiler, and compiles models into it."""
