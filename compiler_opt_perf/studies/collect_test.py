# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from typing import Any

from compiler_opt_perf.studies import collect as bench


def test_tables() -> None:
    events = ("executions", "loads", "llc-load-misses", "conditional-branches")
    located = dict.fromkeys((*events, "conditional-branch-mispredicts"), 0.5)
    collected: dict[str, Any] = {
        "native_s": 0.1,
        "simulated_s": 10.0,
        "slowdown": 100.0,
        "memory_mib": 124.0,
        "instructions": 9_000_000,
        "outside": 1_000_000,
        "undescribed": 2.5,
        "conversion_s": 1.0,
        "addresses": 10_000,
        "symbolising_s": 0.25,
        "profile_kb": 12.0,
        "located": located,
    }
    text = bench.tables({"zstd": collected})
    assert "| zstd | 0.10 s | 10.0 s | 100 | 124 MiB | 10 M | 10% | 1.0 s | 12 kB |" in text
    assert "| 2.5% | 2.40 M/min |" in text
