# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import contextlib
import multiprocessing
import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compiler_opt_perf.compare import history
from compiler_opt_perf.compare.baseline import Artifact, read_baseline, write_baseline
from compiler_opt_perf.compare.check import check
from compiler_opt_perf.compare.errors import CompareError
from compiler_opt_perf.compare.history import accept, add, describe, event_of, events
from compiler_opt_perf.compare.limits import DEFAULT, read_limits
from compiler_opt_perf.compare.testing import sample
from compiler_opt_perf.run.files import FileWriteError, sha256


def _event(text: int = 1000) -> history.HistoryEntry:
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
    store = tmp_path / "new" / "gate.jsonl"
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
    baseline, store = tmp_path / "baseline.json", tmp_path / "gate.jsonl"
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
    with pytest.raises(CompareError, match="is not the baseline any more"):
        accept(measured, baseline, store, "again")
    with pytest.raises(CompareError, match="--reason: is empty"):
        accept(measured, baseline, store, " ")
    assert len(events(store)) == 2


def test_what_cannot_be_written_is_not_in_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline, store = tmp_path / "baseline.json", tmp_path / "gate.jsonl"
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
    store = tmp_path / "gate.jsonl"
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
            folder / "gate.jsonl",
            str(text),
        )
    except CompareError as error:
        raise SystemExit(7 if "is not the baseline any more" in str(error) else 1) from error


def test_of_two_bots_that_accept_one_is_told(tmp_path: Path) -> None:
    accept(_accepted(tmp_path), tmp_path / "baseline.json", tmp_path / "gate.jsonl", "the first")
    against = sha256(tmp_path / "baseline.json")
    context = multiprocessing.get_context("spawn")
    bots = [context.Process(target=_accept_once, args=(tmp_path, against, text)) for text in (1, 2)]
    for bot in bots:
        bot.start()
    for bot in bots:
        bot.join()
    assert sorted(bot.exitcode or 0 for bot in bots) == [0, 7]
    last = events(tmp_path / "gate.jsonl")[-1]
    assert read_baseline(tmp_path / "baseline.json") == sample(text=int(last.reason))


def test_a_history_that_cannot_be_written_has_its_cause_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileWriteError, match="^/proc: no file can be made in it: .*in another fol"):
        add(Path("/proc/gate.jsonl"), _event())
    (tmp_path / "file").touch()
    with pytest.raises(
        FileWriteError, match="file: no file can be made in it: .*in another folder"
    ):
        add(tmp_path / "file" / "gate.jsonl", _event())


def test_a_link_and_its_file_are_one_history(tmp_path: Path) -> None:
    store, link = tmp_path / "there" / "gate.jsonl", tmp_path / "link"
    link.symlink_to(store)
    for path in (link, store, link):
        add(path, _event())
    assert link.is_symlink()
    assert [one.number for one in events(store)] == [1, 2, 3]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no history at all\n" * 100)
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_text(
        '{"format": "compiler-opt-perf/measured-blocks", "version": 1}\n'
    )
    (tmp_path / "newer").write_text('{"format": "compiler-opt-perf/gate-history", "version": 3}\n')
    with contextlib.closing(sqlite3.connect(tmp_path / "old.sqlite")) as old:
        old.execute("CREATE TABLE events (number)")
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (
        ("none", "none: No such file or directory; `cop gate check --store` writes a history"),
        ("text", "text:1:1:1: not JSON.*; name a history that"),
        ("empty", "empty:1.*: not JSON.*; name a history that"),
        ("other", r"other:1: \$\.format: .*; name a history that"),
        ("newer", r"newer:1: \$\.version: expected 2, found 3"),
        (
            "old.sqlite",
            "old.sqlite: is a history of an earlier version, in SQLite; name a new file",
        ),
        ("pipe", "pipe: no regular file"),
        (".", "Is a directory"),
    ):
        before = (tmp_path / name).read_bytes() if (tmp_path / name).is_file() else b""
        with pytest.raises(CompareError, match=problem):
            events(tmp_path / name)
        if name != "none":
            with pytest.raises(CompareError, match=problem):
                add(tmp_path / name, _event())
        assert not before or (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"number":1', '"number":-1', r"gate\.jsonl:2: \$\.number: expected"),
        ('"kind":"check"', '"kind":"guess"', r"gate\.jsonl:2: \$\.kind: "),
        ('"changed":["policy"]', '"changed":3', r"gate\.jsonl:2: \$\.changed: expected"),
        ('"totals":[', '"totals":[{},', r"gate\.jsonl:2: \$\.totals\[0\]\.metric: "),
        ('"setup":{', '"setup":{{', r"gate\.jsonl:2:1:\d+: not JSON"),
        ("}\n", "", r"gate\.jsonl:2:1:\d+: not JSON"),
    ],
)
def test_damage_is_named_and_nothing_added(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    store = tmp_path / "gate.jsonl"
    add(store, _event())
    head, _, line = store.read_text().partition("\n")
    assert old in line
    # At the end of the line, if it is there.
    damaged = f"{head}\n{new.join(line.rsplit(old, 1))}"
    store.write_text(damaged)
    for use in (lambda: events(store), lambda: add(store, _event())):
        with pytest.raises(CompareError, match=message + ".*restore it from a copy"):
            use()
    assert store.read_text() == damaged
