# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The console command `cop`."""
