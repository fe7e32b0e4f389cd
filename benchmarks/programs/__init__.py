# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The real programs that benchmarks measure, and their inputs."""
