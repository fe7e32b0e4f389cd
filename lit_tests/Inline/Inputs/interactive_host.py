# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers the inliner in interactive mode: `interactive_host.py COMMAND...`.

Inlines each time and prints the features, one line an observation.
"""

import sys

from compiler_opt_perf.policy.interactive import InteractiveHost, Observation
from compiler_opt_perf.policy.problem import PROBLEMS

PROBLEM = PROBLEMS["inline-size"]


def decide(observation: Observation) -> int:
    print(*(f"{name}={value[0]}" for name, value in observation.features.items()))
    return 1


with InteractiveHost(PROBLEM, decide) as host:
    host.run([*sys.argv[1:], *PROBLEM.interactive_options(host.channel)])
