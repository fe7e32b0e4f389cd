# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The study of blocks, on a few with known latencies."""

from pathlib import Path

import pytest

from compiler_opt_perf.cost.block_file import Cpu, MeasuredBlocks, Row, write_blocks
from compiler_opt_perf.cost.cpu_files import cpu_file
from compiler_opt_perf.studies.blocks import PREDICTORS, study
from compiler_opt_perf.studies.common import StudyError
from compiler_opt_perf.toolchain.installation import Toolchain

# Chains of additions, multiplications, multiplications of floating point, divisions.
CHAINS = {"4801c8": 1.0, "480fafc1": 3.0, "4883c001480fafc1": 4.0, "f20f5ec1": 13.0}


def write(path: Path, scale: float, mcpu: str = "znver3") -> Path:
    rows = [
        Row(code=code, cycles=scale * cycles, agreeing=2, rounds=2)
        for code, cycles in CHAINS.items()
    ]
    cpu = Cpu("a CPU", mcpu, 25, 1, 1)
    dropped = Row(code="0f05", dropped="system call")
    write_blocks(path, MeasuredBlocks(cpu, 0.17, [*rows, dropped]))
    return path


def tables(report: str) -> list[list[list[str]]]:
    """Cells of the rows of each table, without heads."""
    return [
        [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
        for table in report.strip().split("\n\n")
    ]


def test_chains_of_known_latency_are_predicted(tmp_path: Path, toolchain: Toolchain) -> None:
    first, second = write(tmp_path / "a.blocks", 1.0), write(tmp_path / "b.blocks", 1.02)
    cpu = cpu_file("znver3")
    report = study([first], [second], tool=toolchain.trace_cost, cpu=cpu, most=9, seed=1)
    yields, repeated, judged = tables(report)
    assert yields[1:] == [["measured", "4 (80.00%)"], ["dropped: system call", "1 (20.00%)"]]
    assert repeated[0] == ["a", "4", "0.00%", "100.00%", "1.96%"]
    of_all = {row[1]: row[2:] for row in judged if row[0] == "a"}
    assert {"llvm-mca", "mca", "mca-pmu"} == set(PREDICTORS) < of_all.keys()
    for predictor in PREDICTORS:
        count, mape, median, ratio, tau = of_all[predictor]
        assert (count, tau) == ("4", "1.000")
        # The divisions' latency is not that of any model.
        assert float(mape.rstrip("%")) < 15 and float(median.rstrip("%")) < 4
        assert 0.95 < float(ratio) < 1.05


def test_blocks_of_another_cpu_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.blocks", 1.0, "i486")
    cpu = cpu_file("znver3")
    with pytest.raises(StudyError, match=r"a: measured on a i486, .* of a znver3; give --cpu"):
        study([path], [], tool=Path("none"), cpu=cpu, most=9, seed=1)
