# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.binary.disassembly import split_by_execution
from compiler_opt_perf.binary.symbolize import symbolize
from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.events import event_named
from compiler_opt_perf.profile.hot_code import add_hot_code, hot_instructions
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.llvm import stock_tool

Show = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="module")
def encoded(workload: Path) -> dict[int, tuple[int, str]]:
    """Bytes and text of each instruction of the test program, as the disassembler prints them."""
    command = [str(stock_tool("llvm-objdump")), "-d", str(workload)]
    pattern = re.compile(r"^ +([0-9a-f]+):((?: [0-9a-f]{2})+) *\t(.*)$", re.MULTILINE)
    found = pattern.findall(run_command(command, timeout_s=60).stdout)
    return {int(address, 16): (len(code.split()), text) for address, code, text in found}


@pytest.mark.parametrize(
    ("executions", "hot"),
    [
        ({}, set()),
        ({1: 0, 2: 0}, set()),
        ({1: 990, 2: 10}, {1}),
        ({1: 989, 2: 10, 3: 1}, {1, 2}),
        ({3: 5, 2: 5, 1: 5}, {1, 2, 3}),
        # Of two that run equally often one is enough for the 99%.
        ({1: 985, 9: 5, 4: 5, 7: 5}, {1, 4}),
    ],
)
def test_fewest_instructions(executions: dict[int, int], hot: set[int]) -> None:
    assert hot_instructions(executions) == hot


@pytest.mark.compiler
def test_sizes_are_those_of_the_encoding(
    workload: Path, encoded: dict[int, tuple[int, str]]
) -> None:
    functions, _ = split_by_execution(workload, set(encoded))
    sizes = {address: size for function in functions for address, size in function.items()}
    assert sizes == {address: size for address, (size, _) in encoded.items()}


@pytest.mark.compiler
def test_only_functions_that_were_executed(
    workload: Path, encoded: dict[int, tuple[int, str]]
) -> None:
    locations = symbolize(workload, encoded).locations
    mine = [a for a in encoded if a in locations and locations[a].function == "chase"]
    (found,), others = split_by_execution(workload, {mine[3]})
    assert len(others) == len(set(others)) and set(others) == encoded.keys() - found.keys()
    assert set(mine) <= found.keys()
    assert {locations[a].function for a in found if a in locations} == {"chase"}
    assert split_by_execution(workload, {0})[0] == []


@pytest.mark.compiler
def test_hot_loop_has_the_bytes_of_its_instructions(
    profile: Manifest, show: Show, workload: Path, encoded: dict[int, tuple[int, str]]
) -> None:
    record = profile.event("hot-code-bytes")
    assert (record.kind, record.unit, record.period, record.precise) == ("sum", "bytes", 1, True)
    shown = show(profile.file(record))
    locations = symbolize(workload, encoded).locations
    mine = [a for a in encoded if a in locations and locations[a].function == "chase"]
    # The first backward branch is that of the unrolled loop, the second that of its rest.
    branch = min(a for a in mine if encoded[a][1].startswith("jne"))
    loop = [a for a in mine if int(encoded[branch][1].split()[1], 16) <= a <= branch]
    assert len(loop) == 8 + 2
    assert shown["chase"]["total"] == sum(encoded[a][0] for a in loop)
    # These run a few thousand times less.
    assert "a name:with 3" not in shown
    assert "indirect" not in shown
    assert record.located <= record.total < sum(size for size, _ in encoded.values())


def test_counts_without_executions_stay_as_they_are() -> None:
    counts = Counts((event_named("cpu-time"),), {1: [7]}, [0], {})
    add_hot_code(counts, {1: 4})
    assert counts == Counts((event_named("cpu-time"),), {1: [7]}, [0], {})
