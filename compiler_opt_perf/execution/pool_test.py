# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from compiler_opt_perf.execution.pool import Pool, WorkerError


def _square(value: int) -> int:
    if value == 13:
        raise ValueError("thirteen")
    # Later items end first, so that order is not an accident.
    time.sleep(0.05 / (value + 1))
    return value * value


def _die_once(marker: Path) -> str:
    if not marker.exists():
        marker.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def _die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_results_come_in_the_items_order() -> None:
    with Pool(2) as pool:
        outcomes = pool.map(_square, range(8), label="squares")
    assert [outcome.get() for outcome in outcomes] == [value * value for value in range(8)]


def test_an_exception_costs_its_item_only() -> None:
    with Pool(2) as pool:
        outcomes = pool.map(_square, [3, 13, 4])
    assert (outcomes[0].get(), outcomes[2].get()) == (9, 16)
    with pytest.raises(ValueError, match="thirteen"):
        outcomes[1].get()


def test_a_killed_worker_is_replaced_and_its_task_runs_again(tmp_path: Path) -> None:
    with Pool(2) as pool:
        outcomes = pool.map(_die_once, [tmp_path / "a", tmp_path / "b"])
        assert [outcome.get() for outcome in outcomes] == ["survived", "survived"]


def test_a_task_that_always_kills_its_worker_is_given_up() -> None:
    with Pool(1) as pool:
        with pytest.raises(WorkerError, match="died 3 times"):
            pool.map(_die, [0])[0].get()
        assert pool.map(_square, [5])[0].get() == 25


def test_a_hanging_task_ends_at_its_limit_and_others_go_on() -> None:
    with Pool(2) as pool:
        outcomes = pool.map(_hang, [60.0, 0.01], timeout_s=2.0)
    assert outcomes[1].get() == 0.01
    with pytest.raises(WorkerError, match="killed after its limit"):
        outcomes[0].get()


def _litter(how: str) -> None:
    tempfile.mkdtemp(prefix="compile-")
    # A compiler's own files.
    subprocess.run(["mktemp"], check=True, stdout=subprocess.DEVNULL)
    if how == "hang":
        time.sleep(60)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("how", ["return", "hang", "die", "interrupted"])
def test_killed_workers_leave_no_files(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    try:
        with Pool(2) as pool:
            pool.map(_litter, [how, how], timeout_s=3.0)
            assert len(list(tmp_path.rglob("compile-*"))) >= 2
            if how == "interrupted":
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert how == "interrupted"
    assert list(tmp_path.iterdir()) == []
