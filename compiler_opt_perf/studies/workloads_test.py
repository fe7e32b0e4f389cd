# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

from compiler_opt_perf.studies.workloads import write_records


def test_inputs_are_the_same_each_time(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_records(first)
    write_records(second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().count(b"\n") == 5 + 2 * 40_000 + 1
