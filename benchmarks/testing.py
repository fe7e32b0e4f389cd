# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests of studies of the forty programs have alike: programs of one C file."""

from typing import Any

from benchmarks.programs.forty import Program

#: C: `shares(x)` divides in a chain, which takes a processor long and a simulator no longer than
#: additions do: runs are long enough to be timed, and simulated in a moment.
SHARES = """
#include <stdio.h>
#include <stdlib.h>
static double share(double x) { return 1 / (1 / x + 1); }
static double shares(double x) { return share(share(share(share(share(x))))); }
"""


def program(name: str, **changes: Any) -> Program:
    """A program `work` of one file, work.c, in the source package of the same name."""
    own = {
        "package": name,
        "version": "1-2",
        "language": "C",
        "system": "make",
        "kind": "test",
        "set": "judge",
        "build": "cc work.c -o work",
        "run": "./work",
    }
    return Program(name=name, **(own | changes))
