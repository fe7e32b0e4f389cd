# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import contextlib
import os
import resource
import select
import signal
import sys
from pathlib import Path

import pytest

from compiler_opt_perf.run import command
from compiler_opt_perf.run.command import CompletedCommand
from compiler_opt_perf.run.workload import Run, WorkloadError, run_workload

SHELL = Path("/bin/sh")


def finish(run: Run, folder: Path) -> CompletedCommand:
    """Runs it under a tool that does nothing."""
    return run_workload(run, ["env", *run.command], folder / "stderr", lambda _: None)


def test_files_folder_and_environment(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("given\n")
    (tmp_path / "work").mkdir()
    run = Run(
        SHELL,
        ("-c", "cat; pwd; echo $WORD; echo said >&2; exit 3"),
        stdin=tmp_path / "in",
        stdout=tmp_path / "out",
        cwd=tmp_path / "work",
        env={"WORD": "added"},
    )
    finished = finish(run, tmp_path)
    assert (finished.status, finished.timed_out) == (3, False)
    assert (tmp_path / "out").read_text() == f"given\n{tmp_path}/work\nadded\n"
    assert (tmp_path / "stderr").read_text() == "said\n"


def test_a_signal(tmp_path: Path) -> None:
    finished = finish(Run(SHELL, ("-c", "kill -ABRT $$")), tmp_path)
    assert (finished.status, finished.timed_out) == (-signal.SIGABRT, False)


def test_the_time_limit_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_SECONDS_BETWEEN_REPORTS", 0.05)
    reported: list[float] = []
    run = Run(Path("/bin/sleep"), ["1000"], timeout_s=0.5)
    finished = run_workload(run, run.command, tmp_path / "stderr", reported.append)
    assert (finished.status, finished.timed_out) == (-signal.SIGKILL, True)
    assert reported == sorted(reported) and reported


def test_what_it_took_is_not_what_earlier_ones_took(tmp_path: Path) -> None:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + 1
    code = f"bytearray({own + 100} << 20)"
    large = finish(Run(Path(sys.executable), ("-c", code)), tmp_path)
    small = finish(Run(SHELL, ("-c", "true")), tmp_path)
    # The kernel's mark begins with this process's own.
    assert small.peak_mib < own + 50 < own + 100 < large.peak_mib < own + 200
    assert 0 < small.processor_seconds < large.processor_seconds


def test_nothing_of_it_is_left_running(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    finish(Run(SHELL, ("-c", f"sleep 1000 & echo $! > {pid}")), tmp_path)
    with contextlib.suppress(ProcessLookupError):
        # Readable when it has ended; if nobody kills it, this hangs.
        select.select([os.pidfd_open(int(pid.read_text()))], [], [])


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (Run(SHELL, stdin=Path("/nothing/in")), "/nothing/in"),
        (Run(SHELL, stdout=Path("/nothing/out")), "/nothing/out"),
        (Run(SHELL, cwd=Path("/nothing")), "/nothing"),
    ],
)
def test_what_cannot_be_opened_is_named(run: Run, name: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=f"^{name}: cannot be opened: No such file"):
        finish(run, tmp_path)
