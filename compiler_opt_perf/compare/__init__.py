# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports: what a policy does to modules it was not trained on, as numbers and as text."""
