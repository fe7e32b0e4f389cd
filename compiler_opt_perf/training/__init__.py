# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training of policies: logs of the compiler, warm start, evolution strategies, rewards."""
