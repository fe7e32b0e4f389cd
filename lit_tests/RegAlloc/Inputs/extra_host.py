# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decides as the model `evict-extra` does, in interactive mode: `extra_host.py COMMAND...`."""

import sys

import numpy as np

from compiler_opt_perf.policy.interactive import InteractiveHost, Observation
from compiler_opt_perf.policy.problem import PROBLEMS

PROBLEM = PROBLEMS["regalloc-evict"]


def decide(observation: Observation) -> int:
    mask, rate = (observation.features[name][0] for name in ("mask", "pmu_tlb_miss_rate"))
    return int(np.argmax(mask * (2 + rate)))


with InteractiveHost(PROBLEM, decide) as host:
    host.run([*sys.argv[1:], *PROBLEM.interactive_options(host.channel)])
