# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests of studies have alike: programs of one C file, and labels of decisions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.inline_flips import PROBLEM
from benchmarks.programs.forty import Program
from compiler_opt_perf.policy.testing import random_inputs
from compiler_opt_perf.train.label_files import Labels

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


def labels_by_executions(programs: Sequence[str]) -> list[Labels]:
    """Labels of which those of calls that run often save a hundredth of a percent."""
    labels = []
    names = [feature.name for feature in PROBLEM.inputs(with_pmu=True)]
    for number, name in enumerate(programs):
        inputs = random_inputs(PROBLEM, 300, seed=number)
        inputs |= {name: inputs[name] % 2 for name in ("callee_is_comdat", "callee_is_mangled")}
        observations = np.zeros(300, [(name, "<i8", (1,)) for name in (*names, PROBLEM.decision)])
        for feature in names:
            observations[feature][:, 0] = inputs[feature]
        observations[PROBLEM.decision][:, 0] = inputs[PROBLEM.default_feature]
        often = inputs["pmu_callsite_executions_log2"] > 10
        difference = np.where(often, -100.0, 100.0)
        keys = tuple(map(str, range(300)))
        labels.append(Labels(name, keys, observations, observations[:0], difference, 1e6, 300))
    return labels
