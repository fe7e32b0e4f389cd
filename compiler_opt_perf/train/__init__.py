# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training of policies: logs of the compiler, stages and their algorithms, labels, rewards."""
