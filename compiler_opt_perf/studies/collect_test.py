# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path
from typing import Any

from compiler_opt_perf.studies import collect as bench


def test_inputs_are_the_same_each_time(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    bench.write_records(first)
    bench.write_records(second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().count(b"\n") == 5 + 2 * 40_000 + 1


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
