# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from compiler_opt_perf.run.executor import WorkerError
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.template import Template, start_copy


def _tell(connection: "Connection[Any, Any]", name: str) -> None:
    """Sends where it is, what it was forked from, a variable and which modules it has."""
    loaded = {"numpy", "fractions"} & set(sys.modules)
    connection.send((os.getcwd(), os.getppid(), os.environ.get(name), loaded))


def _ask(preload: str | None, name: str) -> Any:
    ours, theirs = multiprocessing.Pipe()
    template, pid = start_copy(preload, _tell, theirs, name)
    theirs.close()
    told = ours.recv()
    assert template.exit_code(pid) == 0
    return told


def test_copies_are_where_their_owner_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ask(None, "PLACE")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACE", "here")
    folder, _, variable, _ = _ask(None, "PLACE")
    assert (folder, variable) == (str(tmp_path), "here")


def test_copies_have_what_their_template_imported() -> None:
    parents = {}
    for preload, expected in ((None, "numpy"), ("fractions", "fractions")):
        (_, one, _, loaded), (_, other, _, _) = (_ask(preload, "PLACE") for _ in range(2))
        assert one == other
        assert expected in loaded
        parents[preload] = one
    assert len({*parents.values(), os.getpid()}) == 3


def _end(connection: "Connection[Any, Any]", how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "error":
        raise ValueError(how)
    connection.close()


@pytest.mark.parametrize(("how", "code"), [("well", 0), ("error", 1), ("killed", -9)])
def test_exit_codes(how: str, code: int) -> None:
    ours, theirs = multiprocessing.Pipe()
    template, pid = start_copy(None, _end, theirs, how)
    theirs.close()
    with pytest.raises(EOFError):
        ours.recv()
    assert template.exit_code(pid) == code


def _triple(value: int) -> int:
    return 3 * value


def test_a_killed_template_costs_nothing() -> None:
    with Pool(1) as pool:
        assert pool.map(_triple, [1])[0].get() == 3
        _, template, _, _ = _ask(None, "PLACE")
        os.kill(template, signal.SIGKILL)
        # By the worker that it had forked, and by one that has another parent.
        assert pool.map(_triple, [2])[0].get() == 6
        pool.workers = 2
        assert [one.get() for one in pool.map(_triple, [3, 4])] == [9, 12]
        _, another, _, _ = _ask(None, "PLACE")
    assert another != template


@pytest.mark.parametrize("when", ["as it imports", "with its copy"])
def test_templates_killed_as_they_start_are_replaced(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first three of them."""
    killed: set[int] = set()
    fork = Template.fork

    def kill_first(template: Template, *request: Any) -> int:
        pid = template.process.pid
        assert pid is not None
        if len(killed | {pid}) > 3:
            return fork(template, *request)
        killed.add(pid)
        if when == "as it imports":
            os.kill(pid, signal.SIGKILL)
            return fork(template, *request)
        copy = fork(template, *request)
        for one in (pid, copy):
            os.kill(one, signal.SIGKILL)
        # Nobody may be there any more who has the id.
        deadline = time.monotonic() + 2.0
        while Path(f"/proc/{copy}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return copy

    monkeypatch.setattr(Template, "fork", kill_first)
    with Pool(1, preload="fractions") as pool:
        assert [one.get() for one in pool.map(_triple, [1, 2], timeout_s=60.0)] == [3, 6]
    assert len(killed) == 3


def test_a_template_that_cannot_import_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with Pool(1, preload="no_such_module") as pool, pytest.raises(WorkerError, match="copy of"):
        pool.map(_triple, [1])
    assert "No module named 'no_such_module'" in capfd.readouterr().err


def test_a_template_ends_with_its_last_reference() -> None:
    template = Template("fractions")
    (process,) = (
        child for child in multiprocessing.active_children() if child.pid == template.process.pid
    )
    del template
    process.join(20.0)
    assert process.exitcode == 0
