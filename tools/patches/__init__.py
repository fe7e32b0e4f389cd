# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Upkeep of the patch series: apply, write back, check, export (tools/patches/series)."""
