# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import sys
from pathlib import Path

import pytest

from compiler_opt_perf.run import timing
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.timing import (
    find_meter,
    processor_seconds,
    seconds_so_far,
)

_BUSY = "import time\nwhile time.process_time() < 0.2: pass"


def test_counts_the_processor_time_of_the_run_alone() -> None:
    processor = max(os.sched_getaffinity(0))
    busy = processor_seconds([sys.executable, "-S", "-c", _BUSY], processor)
    assert busy >= 0.2
    assert processor_seconds(["sleep", "0.3"]) < 0.2


def test_tells_the_time_of_children_apart_from_ones_own() -> None:
    def spent(own: bool, command: list[str]) -> float:
        before = seconds_so_far(own=own)
        run_command(command)
        while own and seconds_so_far(own=own) - before < 0.3:
            pass
        return seconds_so_far(own=own) - before

    busy = [sys.executable, "-S", "-c", _BUSY]
    assert spent(False, busy) >= 0.2
    assert spent(True, busy) >= 0.3
    assert spent(False, ["true"]) < 0.2


def test_binds_the_run_to_the_processor() -> None:
    processor = max(os.sched_getaffinity(0))
    alone = f"import os, sys\nsys.exit(os.sched_getaffinity(0) != {{{processor}}})"
    processor_seconds([sys.executable, "-S", "-c", alone], processor)


def test_a_failed_run_is_no_measurement() -> None:
    with pytest.raises(CommandError, match="false: exit status 1"):
        processor_seconds(["false"])


_LOOP = """
#include <stdlib.h>
int main(int argc, char **argv) {
  volatile unsigned Sink = 0;
  for (int I = 0; I < atoi(argv[1]); ++I)
    Sink += I;
}
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that executes 5 to 9 instructions as often as its argument says."""
    folder = tmp_path_factory.mktemp("loop")
    (folder / "loop.c").write_text(_LOOP)
    run_command([stock_tool("clang"), "-O1", folder / "loop.c", "-o", folder / "loop"])
    return folder / "loop"


@pytest.mark.compiler
def test_counted_instructions_tell_a_thousandth(loop: Path, tmp_path: Path) -> None:
    meter = find_meter("instructions", tmp_path)
    assert str(meter).startswith("instructions, counted by ") and meter.counts
    some, more = (meter.measure([loop, str(rounds)], 60) for rounds in (10_000_000, 10_010_000))
    assert more / some == pytest.approx(1.001, abs=0.0001)
    with pytest.raises(CommandError, match="exit status 1"):
        meter.measure(["/bin/false"])


@pytest.mark.compiler
def test_processor_time_is_that_of_the_command_alone(loop: Path, tmp_path: Path) -> None:
    meter = find_meter("processor-time", tmp_path)
    assert str(meter) == "processor time" and not meter.counts
    assert meter.measure(["sleep", "0.3"]) < 0.2
    assert meter.measure([sys.executable, "-S", "-c", _BUSY]) >= 0.2
    with pytest.raises(CommandError, match="limit of 0.1 s"):
        meter.measure(["sleep", "5"], timeout_s=0.1)


@pytest.mark.compiler
def test_instructions_are_counted_where_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perf = tmp_path / "perf"
    perf.write_text(
        '#!/bin/sh\nfor word; do case $word in -o*) echo "# started\n\n$COUNT,,instructions:u" '
        '> "${word#-o}";; esac; done\n'
    )
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("COUNT", "123")
    meter = find_meter("auto", tmp_path)
    assert str(meter) == "instructions, counted by the processor (perf stat)"
    assert meter.measure(["true"]) == 123
    monkeypatch.setenv("COUNT", "<not supported>")
    assert find_meter("auto", tmp_path).how == "qemu"
    monkeypatch.setattr(timing, "qemu_words", lambda: ["no-such-qemu"])
    assert find_meter("auto", tmp_path).how == "time"
    with pytest.raises(CommandError, match="perf: counted nothing"):
        meter.measure(["true"])
