# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`python -m compiler_opt_perf.fuzz`: see `harness`."""

from compiler_opt_perf.fuzz.harness import main

if __name__ == "__main__":
    main()
