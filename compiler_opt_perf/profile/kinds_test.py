# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from pathlib import Path

import pytest

from compiler_opt_perf.binary.disassembly import Disassembly, Kind, disassemble
from compiler_opt_perf.profile.callgrind_dump import Dump

pytestmark = pytest.mark.compiler


def test_kinds_agree_with_the_simulator(workload: Path, real_dump: Dump) -> None:
    """What the simulator saw load, store or branch is of that kind."""
    code: Disassembly = disassemble(workload)
    columns = {name: number for number, name in enumerate(real_dump.columns)}
    wanted = {
        "Dr": Kind.LOAD,
        "Dw": Kind.STORE,
        "Bc": Kind.CONDITIONAL,
        "Bi": Kind.INDIRECT,
    }
    seen = dict.fromkeys(wanted, 0)
    for address, counts in real_dump.counts.items():
        index = code.index(address)
        assert index is not None
        for name, kind in wanted.items():
            if len(counts) > columns[name] and counts[columns[name]]:
                assert code.kinds[index] & kind, f"{address:#x}"
                seen[name] += 1
    assert all(seen.values())
