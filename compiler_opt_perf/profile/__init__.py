# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PMU profiles: counts and rates of events at a program's source locations."""
