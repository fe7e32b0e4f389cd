# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the questions about callee-saved registers in a training log, and checks their columns."""

import sys
from pathlib import Path

import numpy as np

from compiler_opt_perf.train.log import read_log

log = read_log(Path(sys.argv[1]))
for key, one in zip(log.keys, log.observations, strict=True):
    if " saved #" not in key:
        assert not one["alternative_is_split"].any() and not one["alternative_is_spill"].any()
        continue
    column = {name: one[name].reshape(-1) for name in one.dtype.names}
    use = int(column["first_use_of_callee_saved"].argmax())
    assert np.flatnonzero(column["mask"]).tolist() == [use, 32]
    assert int(column["default_decision"].argmax()) == int(column["index_to_evict"][0])
    kinds = ("split", "spill")
    (kind,) = [kind for kind in kinds if column[f"alternative_is_{kind}"][use]]
    names = ("alternative_cost", "spill_cost", "coldest_block", "hottest_block")
    names += ("callee_saved_in_use",)
    assert all(column[name][use] == column[name][32] for name in names)
    cost, spilled, coldest, hottest, in_use = (column[name][32] for name in names)
    assert kind == "split" or abs(cost - spilled) < 0.01, f"{key}: {cost} for {spilled}"
    print(
        f"{key}: use {use}, {kind}, cost 2^{cost:.1f}, spilled 2^{spilled:.1f}, "
        f"blocks 2^{coldest:.1f} to 2^{hottest:.1f}, {in_use:.0f} in use"
    )
    if "pmu_entries" in column:
        executions, entries = (
            column[f"pmu_{name}"][32] for name in ("alternative_executions", "entries")
        )
        print(f"executions {executions:.2f}, entries {entries:.2f}")
