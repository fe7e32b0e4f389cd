# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the decision features of a training log with its decisions."""

import sys
from pathlib import Path

import numpy as np

from compiler_opt_perf.train.log import read_log

observations = read_log(Path(sys.argv[1])).observations
print("observations:", len(observations))
default = observations["default_decision"].reshape(len(observations), -1)
assert (default.sum(axis=1) == 1).all()
decision = observations["index_to_evict"].reshape(-1)
print("default_decision differs:", int((default.argmax(axis=1) != decision).sum()))
floats = [name for name in observations.dtype.names if observations[name].dtype.kind == "f"]
print("not finite:", sum(int((~np.isfinite(observations[name])).sum()) for name in floats))
print("positions that can't be spilled:", int((observations["use_def_density"] == 2).sum()))
for name in ("default_decision", "first_use_of_callee_saved", "reassignable"):
    print(f"{name}:", *(f"{value:g}" for value in np.unique(observations[name])))
