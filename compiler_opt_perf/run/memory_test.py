# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import sys
from pathlib import Path

import pytest

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.memory import with_peak_memory


def _peak(folder: Path, mebibytes: int) -> int:
    output = folder / "peak"
    program = [sys.executable, "-c", f"a = b'x' * ({mebibytes} << 20)"]
    run_command(with_peak_memory(program, output))
    return int(output.read_text())


def test_the_peak_is_the_commands_own(tmp_path: Path) -> None:
    # This process is much larger than the command, and would hide it.
    ballast = b"x" * (200 << 20)
    small, large = _peak(tmp_path, 1), _peak(tmp_path, 65)
    assert len(ballast) == 200 << 20
    assert small < 60 << 10
    assert (62 << 10) < large - small < (66 << 10)


@pytest.mark.parametrize(("code", "kind"), [("exit(3)", "failed"), ("os.abort()", "crashed")])
def test_it_ends_as_the_command_does(tmp_path: Path, code: str, kind: str) -> None:
    program = [sys.executable, "-c", f"import os; {code}"]
    with pytest.raises(CommandError) as caught:
        run_command(with_peak_memory(program, tmp_path / "peak"))
    assert caught.value.kind == kind
    assert caught.value.returncode == {"failed": 3, "crashed": -6}[kind]
