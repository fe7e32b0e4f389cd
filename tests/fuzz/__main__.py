# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`python -m tests.fuzz`: see `harness`."""

from tests.fuzz.harness import main

if __name__ == "__main__":
    main()
