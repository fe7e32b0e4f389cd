# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes PMU profiles of loops.c in which one or two events happen always: make_profiles.py DIR"""

import json
import os
import sys

os.chdir(sys.argv[1])
LINES = {"chase": (2, 3), "gather": (2, 3, 4), "search": (2, 3)}
profile = "".join(
    f"{name}:{100 * len(lines)}:0\n" + "".join(f" {line}: 100\n" for line in lines)
    for name, lines in LINES.items()
)
TOTAL = sum(100 * len(lines) for lines in LINES.values())
RATES = {
    "llc-miss-probability": ("llc-load-misses", "loads"),
    "l1-miss-probability": ("l1-load-misses", "loads"),
    "branch-mispredict-rate": ("conditional-branch-mispredicts", "conditional-branches"),
    "icache-miss-rate": ("icache-misses", "instructions"),
}
for name, rates in (
    ("misses", ["llc-miss-probability"]),
    ("l1-misses", ["l1-miss-probability", "branch-mispredict-rate"]),
    ("mispredicts", ["branch-mispredict-rate"]),
    ("both", ["llc-miss-probability", "branch-mispredict-rate"]),
    ("fetches", ["icache-miss-rate"]),
):
    events = [event for rate in rates for event in RATES[rate]]
    for event in events:
        with open(f"{event}.txt", "w") as file:
            file.write(profile)
    manifest = {
        "format": "compiler-opt-perf/pmu-profile",
        "version": 4,
        "program": {"path": "loops", "build_id": "00"},
        "events": [
            {"name": event, "file": f"{event}.txt", "kind": "sum", "total": TOTAL}
            for event in events
        ],
        "rates": [
            {"name": r, "numerator": RATES[r][0], "denominator": RATES[r][1], "prior_share": 0}
            for r in rates
        ],
    }
    with open(f"{name}.json", "w") as file:
        json.dump(manifest, file)
