# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws what other rooms computed: self-contained HTML pages with plots."""
