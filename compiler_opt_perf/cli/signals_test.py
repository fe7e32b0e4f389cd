# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ends running commands as batch systems do; nothing of them is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from compiler_opt_perf.execution.command import run_command
from compiler_opt_perf.execution.llvm import stock_tool
from compiler_opt_perf.pmu.binary import PROFILING_FLAGS

# Says that it runs, then runs for ever.
_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
volatile long Sink;
int main(int Argc, char **Argv) {
  fclose(fopen(Argv[1], "w"));
  for (;;)
    ++Sink;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "endless.c").write_text(_PROGRAM)
    flags = [*PROFILING_FLAGS.split(), "-fbasic-block-address-map", "-Wl,--build-id"]
    clang = [str(stock_tool("clang")), "-O1", "-fuse-ld=lld", *flags]
    run_command([*clang, folder / "endless.c", "-o", folder / "endless"])
    return folder / "endless"


def _restore_signals() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def running(arguments: Sequence[str], scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """`cop` with these arguments and temporary files in `scratch`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "compiler_opt_perf.cli.main", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        # A test that was started in the background, or by nohup, ignores some signals.
        preexec_fn=_restore_signals,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("kind", [".pmu.json", ".bbtrace"])
def test_nothing_is_left_of_a_run(
    program: Path, tmp_path: Path, number: signal.Signals, kind: str
) -> None:
    scratch, output, ready = (tmp_path / name for name in ("scratch", "output", "ready"))
    scratch.mkdir()
    words = ["collect", f"--binary={program}", f"--output={output / 'e'}{kind}"]
    words += ["--trace"] if kind == ".bbtrace" else []
    with running([*words, "--", str(ready)], scratch) as process:
        for _ in range(600):
            if ready.exists() or process.poll() is not None:
                break
            time.sleep(0.1)
        process.send_signal(number)
        _, messages = process.communicate(timeout=60)
    assert ready.exists()
    how = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert messages.splitlines()[-1] == (f"cop collect: {how}; nothing unfinished is left behind")
    assert "Traceback" not in messages
    assert process.returncode == 128 + number
    assert list(scratch.iterdir()) == []
    assert list(output.iterdir()) == []
