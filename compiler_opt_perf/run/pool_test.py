# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_opt_perf.run import pool as pool_module
from compiler_opt_perf.run.executor import WorkerError
from compiler_opt_perf.run.pool import Pool


def _square(value: int) -> int:
    if value == 13:
        raise ValueError("thirteen")
    # Later items end first, so that order is not an accident.
    time.sleep(0.05 / (value + 1))
    return value * value


def _die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_a_task_that_always_kills_its_worker_is_given_up() -> None:
    with Pool(1) as pool:
        with pytest.raises(WorkerError, match="died 3 times"):
            pool.map(_die, [0])[0].get()
        assert pool.map(_square, [5])[0].get() == 25


def workers_of_this_process() -> list[int]:
    """Process ids of the workers, including those that still start."""
    return [one.pid for one in multiprocessing.active_children() if one.pid is not None]


@pytest.mark.parametrize("victims", [1, 2])
def test_a_worker_killed_while_idle_is_replaced(victims: int) -> None:
    with Pool(2) as pool:
        assert len(pool.map(_hang, [0.1] * 4)) == 4
        pids = workers_of_this_process()
        assert len(pids) == 2
        for pid in pids[:victims]:
            os.kill(pid, signal.SIGKILL)
        outcomes = pool.map(_square, range(6))
        assert [outcome.get() for outcome in outcomes] == [value * value for value in range(6)]
        # The one just before the work, whose death is not seen yet.
        os.kill(workers_of_this_process()[0], signal.SIGKILL)
        assert pool.map(_square, [7])[0].get() == 49


def test_work_is_done_when_all_idle_workers_are_dead() -> None:
    with Pool(2) as pool:
        assert len(pool.map(_hang, [0.1] * 4)) == 4
        for pid in workers_of_this_process():
            os.kill(pid, signal.SIGKILL)
        # Dead, so that giving them work fails, not only waiting for its result.
        while workers_of_this_process():
            time.sleep(0.01)
        assert [outcome.get() for outcome in pool.map(_square, range(3))] == [0, 1, 4]


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2])
def test_a_worker_killed_as_it_starts_is_replaced(delay_s: float) -> None:
    killed = threading.Event()

    def kill_first() -> None:
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            if pids := workers_of_this_process():
                time.sleep(delay_s)
                os.kill(pids[0], signal.SIGKILL)
                killed.set()
                return

    killer = threading.Thread(target=kill_first)
    with Pool(2) as pool:
        killer.start()
        outcomes = pool.map(_hang, [0.1] * 20, timeout_s=60.0)
        killer.join()
    assert killed.is_set()
    assert [outcome.get() for outcome in outcomes] == [0.1] * 20


def test_a_worker_killed_at_work_runs_its_task_again(tmp_path: Path) -> None:
    def kill_at_work() -> None:
        while not list(tmp_path.iterdir()):
            time.sleep(0.01)
        os.kill(int(next(tmp_path.iterdir()).name), signal.SIGKILL)

    killer = threading.Thread(target=kill_at_work)
    killer.start()
    with Pool(2) as pool:
        outcomes = pool.map(_say_pid_and_work, [tmp_path] * 4)
    killer.join()
    assert [outcome.get() for outcome in outcomes] == ["done"] * 4
    # One more was started for the one that was killed.
    assert len(list(tmp_path.iterdir())) == 3


def _say_pid_and_work(folder: Path) -> str:
    (folder / str(os.getpid())).touch()
    time.sleep(1.0)
    return "done"


def test_workers_that_never_start_cost_their_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_serve", _exit_at_once)
    with Pool(2) as pool:
        for outcome in pool.map(_square, [1, 2]):
            with pytest.raises(WorkerError, match=r"its worker died 3 times \(exit code 3\)"):
                outcome.get()


def _exit_at_once(*_: object) -> None:
    os._exit(3)


class _UnsendableError(Exception):
    def __init__(self, one: int, two: int):
        super().__init__(f"{one} {two}")


def _raise_unsendable(_: int) -> None:
    raise _UnsendableError(1, 2)


def test_what_cannot_be_sent_costs_its_item_only() -> None:
    with Pool(1) as pool:
        for function in (_raise_unsendable, _return_unsendable):
            with pytest.raises(WorkerError, match="cannot be sent to another process"):
                pool.map(function, [0])[0].get()
        assert pool.map(_square, [3])[0].get() == 9


def _return_unsendable(_: int) -> object:
    return lambda: 0


@pytest.fixture
def sigint_raises() -> Iterator[None]:
    """Whoever runs the tests may have SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_raises")
def test_an_interrupted_call_leaves_no_results_for_the_next() -> None:
    def interrupt() -> None:
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    with Pool(2) as pool:
        assert len(pool.map(_hang, [0.1, 0.1])) == 2
        timer = threading.Thread(target=interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            pool.map(_hang, [2.0] * 4)
        timer.join()
        assert pool.map(_square, [4])[0].get() == 16


def test_workers_and_their_files_end_with_their_parent(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    script = tmp_path / "parent.py"
    script.write_text(
        "from pathlib import Path\n"
        "from compiler_opt_perf.run import pool_test\n"
        "from compiler_opt_perf.run.pool import Pool\n"
        "if __name__ == '__main__':\n"
        "    with Pool(2) as pool:\n"
        f"        pool.map(pool_test._say_pid_and_hang, [Path({str(tmp_path)!r})] * 2)\n"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen([sys.executable, script], cwd=root, env=environment) as parent:
        while len(pids := [int(path.stem) for path in tmp_path.glob("*.pid")]) < 2:
            assert parent.poll() is None
            time.sleep(0.05)
        assert list(scratch.iterdir())
        parent.kill()
    deadline = time.monotonic() + 60.0

    def left() -> list[Path]:
        running = [path for pid in pids if (path := Path(f"/proc/{pid}")).exists()]
        return [*running, *scratch.iterdir()]

    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left()


def _say_pid_and_hang(folder: Path) -> None:
    (folder / f"{os.getpid()}.pid").touch()
    time.sleep(100.0)


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
            pool.map(_litter, [how, how], timeout_s=5.0)
            assert len(list(tmp_path.rglob("compile-*"))) >= 2
            if how == "interrupted":
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert how == "interrupted"
    assert list(tmp_path.iterdir()) == []


def _surroundings(variable: str) -> tuple[str, str | None]:
    return os.getcwd(), os.environ.get(variable)


def test_workers_have_the_folder_and_environment_of_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pool(1) as pool:
        pool.map(_surroundings, ["PLACE"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACE", "here")
    with Pool(1) as pool:
        assert pool.map(_surroundings, ["PLACE"])[0].get() == (str(tmp_path), "here")


def _parent(_: int) -> int:
    return os.getppid()


def test_a_killed_fork_server_costs_nothing() -> None:
    with Pool(1) as pool:
        server = pool.map(_parent, [0])[0].get()
        os.kill(server, signal.SIGKILL)
        # By the worker that it had forked, and by another server's.
        assert pool.map(_square, [2])[0].get() == 4
        pool.workers = 2
        assert [one.get() for one in pool.map(_square, [3, 4])] == [9, 16]
    with Pool(1) as pool:
        assert pool.map(_parent, [0])[0].get() not in (server, os.getpid())
