# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Policies: each optimisation problem, the network that decides it, and its published form."""
