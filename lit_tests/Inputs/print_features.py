# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints each PMU feature of a training log with the values it takes, without repetition."""

import sys
from pathlib import Path

import numpy as np

from compiler_opt_perf.train.log import read_log

log = read_log(Path(sys.argv[1]))
for name in log.record.names or ():
    if name.startswith("pmu_"):
        values = np.unique(log.observations[name].astype(float).round(4))
        print(f"{name}:", *(f"{value:g}" for value in values))
