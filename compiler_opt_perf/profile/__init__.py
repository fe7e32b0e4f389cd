# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PMU profiles: from one run of a program to counts and rates at its source locations."""
