# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Benchmarks that are repeated for releases: `python -m benchmarks --help` lists them."""
