# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gate of build bots: tells whether a candidate is worse than a baseline, in what, and why."""
