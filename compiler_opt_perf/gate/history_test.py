# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import contextlib
import multiprocessing
import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compiler_opt_perf.execution.files import FileWriteError, sha256
from compiler_opt_perf.gate import history
from compiler_opt_perf.gate.baseline import Artifact, read_baseline, write_baseline
from compiler_opt_perf.gate.check import check
from compiler_opt_perf.gate.errors import GateError
from compiler_opt_perf.gate.history import accept, add, describe, event_of, events
from compiler_opt_perf.gate.limits import DEFAULT, read_limits
from compiler_opt_perf.gate.testing import sample


def _event(text: int = 1000) -> history.Event:
    measured = sample(text=text)
    measured = msgspec.structs.replace(
        measured, setup=msgspec.structs.replace(measured.setup, policy=Artifact("new", "9"))
    )
    return event_of("check", check(sample(), measured, read_limits(DEFAULT)), measured)


def _accepted(folder: Path, against: str = "", **changes: Any) -> Path:
    path = folder / "measured.json"
    write_baseline(msgspec.structs.replace(sample(**changes), against=against), path)
    return path


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = tmp_path / "new" / "gate.sqlite"
    for text in (1000, 1500):
        add(store, _event(text))
    found = events(store)
    assert [one.number for one in found] == [1, 2]
    assert [one.verdict for one in found] == ["passes", "worse"]
    assert msgspec.structs.replace(found[1], number=0, date="") == msgspec.structs.replace(
        _event(1500), date=""
    )
    shown = describe(found)
    assert "check regalloc-evict: worse; changed: policy\n" in shown
    assert "  text 2,000 -> 2,500 (worse)\n" in shown


def test_what_is_accepted_is_the_baseline(tmp_path: Path) -> None:
    baseline, store = tmp_path / "baseline.json", tmp_path / "gate.sqlite"
    accept(_accepted(tmp_path), baseline, store, "the first")
    assert read_baseline(baseline) == sample()
    measured = _accepted(tmp_path, sha256(baseline), text=1500)
    event = accept(measured, baseline, store, "larger\x1b[31m, and faster")
    assert read_baseline(baseline) == sample(text=1500)
    (text,) = (one for one in event.totals if one.metric == "text")
    assert (text.before, text.after) == (2000, 2500)
    shown = describe(events(store))
    assert "reason: the first\n" in shown and "\x1b" not in shown
    # Meanwhile there is another baseline.
    with pytest.raises(GateError, match="is not the baseline any more.*check the candidate again"):
        accept(measured, baseline, store, "again")
    with pytest.raises(GateError, match="--reason: is empty"):
        accept(measured, baseline, store, " ")
    assert len(events(store)) == 2


def test_what_cannot_be_written_is_not_in_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline, store = tmp_path / "baseline.json", tmp_path / "gate.sqlite"
    accept(_accepted(tmp_path), baseline, store, "the first")

    def full(*_: object) -> None:
        raise FileWriteError("no space left")

    monkeypatch.setattr(history, "write_baseline", full)
    with pytest.raises(FileWriteError):
        accept(_accepted(tmp_path, text=1500), baseline, store, "the second")
    assert [one.reason for one in events(store)] == ["the first"]
    assert read_baseline(baseline) == sample()


def _add_many(store: Path, number: int) -> None:
    for _ in range(number):
        add(store, _event())


def test_two_bots_share_a_history(tmp_path: Path) -> None:
    store = tmp_path / "gate.sqlite"
    context = multiprocessing.get_context("spawn")
    bots = [context.Process(target=_add_many, args=(store, 25)) for _ in range(2)]
    for bot in bots:
        bot.start()
    for bot in bots:
        bot.join()
    assert [bot.exitcode for bot in bots] == [0, 0]
    assert [one.number for one in events(store)] == list(range(1, 51))


def _accept_once(folder: Path, against: str, text: int) -> None:
    own = folder / str(text)
    own.mkdir()
    try:
        accept(
            _accepted(own, against, text=text),
            folder / "baseline.json",
            folder / "gate.sqlite",
            str(text),
        )
    except GateError as error:
        raise SystemExit(7 if "is not the baseline any more" in str(error) else 1) from error


def test_of_two_bots_that_accept_one_is_told(tmp_path: Path) -> None:
    accept(_accepted(tmp_path), tmp_path / "baseline.json", tmp_path / "gate.sqlite", "the first")
    against = sha256(tmp_path / "baseline.json")
    context = multiprocessing.get_context("spawn")
    bots = [context.Process(target=_accept_once, args=(tmp_path, against, text)) for text in (1, 2)]
    for bot in bots:
        bot.start()
    for bot in bots:
        bot.join()
    assert sorted(bot.exitcode or 0 for bot in bots) == [0, 7]
    last = events(tmp_path / "gate.sqlite")[-1]
    assert read_baseline(tmp_path / "baseline.json") == sample(text=int(last.reason))


def test_a_history_that_cannot_be_written_has_its_cause_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says "unable to open database file" of all of these."""
    (tmp_path / "link").symlink_to(tmp_path / "none" / "gate.sqlite")
    with pytest.raises(FileWriteError, match="^/proc: cannot be written: "):
        add(Path("/proc/gate.sqlite"), _event())
    with pytest.raises(GateError, match="unable to open .*; change its permissions, or name a hi"):
        add(tmp_path / "link", _event())
    store = tmp_path / "gate.sqlite"
    add(store, _event())
    monkeypatch.setattr(history, "_PATIENCE_S", 0.01)
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(GateError, match="database is locked; another command holds it; run th"):
            add(store, _event())


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all\n" * 100)
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE events (number)")
    other.close()
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (
        ("none", "none: No such file or directory"),
        ("text", "text: file is not a database"),
        ("other", "other: is no history of this version"),
        ("pipe", "pipe: no regular file"),
        (".", "Is a directory"),
    ):
        with pytest.raises(GateError, match=problem):
            events(tmp_path / name)
        if name != "none":
            with pytest.raises(GateError, match=problem):
                add(tmp_path / name, _event())
    store = tmp_path / "gate.sqlite"
    add(store, _event())
    damaged = sqlite3.connect(store)
    for details in ("{", "[]", '{"changed": 3}'):
        with damaged:
            damaged.execute("UPDATE events SET details = ?", (details,))
        with pytest.raises(GateError, match=r"gate.sqlite, event 1: .*restore the file"):
            events(store)
    damaged.close()
