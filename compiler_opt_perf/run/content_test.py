# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tasks with the content of files, given to processes and, without one, to a store."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType

import pytest

from compiler_opt_perf.run import executor
from compiler_opt_perf.run import pool as pool_module
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.content import Content, Manifest, NodeError, Store, Tool, pack
from compiler_opt_perf.run.executor import Executor, Request
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.ray_cluster import LOCAL, RayExecutor


@dataclass(frozen=True)
class _Input:
    """Of a kind that nests, as jobs do."""

    file: Content
    folder: Content | None = None
    several: tuple[Content, ...] = ()
    manifests: Mapping[str, Manifest] = field(default_factory=dict)


@dataclass(frozen=True)
class _Job:
    of: _Input
    output: Path
    tool: Tool = Path("/bin/sh")


def _describe(job: _Job) -> dict[str, str]:
    """Every file that it finds, by its name; and the one path that does not travel."""
    of = job.of
    paths = [of.file, *of.several, *(of.folder.iterdir() if of.folder is not None else ())]
    paths += [one for path in of.manifests.values() for one in path.parent.iterdir()]
    return {path.name: path.read_text() for path in paths} | {"output": str(job.output)}


def _fail(job: _Job) -> None:
    run_command(["false", job.of.file])


def _paths(job: _Job) -> tuple[str, int]:
    return str(job.of.file), len(list(job.of.file.parents[1].iterdir()))


@pytest.fixture
def job(tmp_path: Path) -> _Job:
    for name in ("one.bc", "two.bc", "model/a", "model/b", "model/not/sent", "events.txt", "rest"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    manifest = tmp_path / "p.json"
    manifest.write_text('{"events": [{"name": "x", "profile": {"file": "events.txt"}}]}')
    one, two = tmp_path / "one.bc", tmp_path / "two.bc"
    return _Job(_Input(one, tmp_path / "model", (two,), {"p": manifest}), tmp_path / "rest")


def test_contents_arrive_without_their_files(job: _Job, tmp_path: Path) -> None:
    parcel = pack((_describe, job))
    store = Store(tmp_path / "elsewhere")
    for digest, folder in parcel.folders.items():
        store.keep(digest, folder.read())
    for path in (job.of.file, tmp_path / "model" / "a", tmp_path / "events.txt"):
        path.unlink()
    function, arrived = store.unpack(parcel.message)
    found = function(arrived)
    manifest = found.pop("p.json")
    assert "events.txt" in manifest
    assert found == {
        "one.bc": "content of one.bc",
        "two.bc": "content of two.bc",
        "a": "content of model/a",
        "b": "content of model/b",
        "events.txt": "content of events.txt",
        "output": str(job.output),
    }


@dataclass(frozen=True)
class _Texts:
    """As dataclasses are in a module that imports annotations from __future__."""

    file: "Content"
    several: "tuple[Content, ...]"
    absent: "Content | None" = None


@dataclass(frozen=True)
class _Lists:
    file: list[Content]
    several: set[Content]
    tables: Mapping[str, list[Content]]


def _arrived(tmp_path: Path, job: object) -> object:
    parcel = pack(job)
    store = Store(tmp_path / "elsewhere")
    for digest, folder in parcel.folders.items():
        store.keep(digest, folder.read())
    return store.unpack(parcel.message)


def test_marks_are_found_however_they_are_written(job: _Job, tmp_path: Path) -> None:
    one, two = job.of.file, job.of.several[0]
    texts = _arrived(tmp_path, _Texts(one, (two,)))
    lists = _arrived(tmp_path, _Lists([one], {two}, {"x": [one]}))
    assert isinstance(texts, _Texts) and isinstance(lists, _Lists)
    paths = [texts.file, *texts.several, *lists.file, *lists.several, *lists.tables["x"]]
    assert all(path.is_relative_to(tmp_path / "elsewhere") for path in paths)
    assert [path.name for path in paths] == ["one.bc", "two.bc", "one.bc", "two.bc", "one.bc"]
    assert texts.absent is None


def test_what_cannot_travel_is_an_error(job: _Job) -> None:
    with pytest.raises(TypeError, match="a marked path in a str cannot travel"):
        pack(_Input(str(job.of.file)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["model/linked", "events.txt"])
def test_links_do_not_travel(name: str, job: _Job, tmp_path: Path) -> None:
    """They could be of any file of this machine."""
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="is a symbolic link"):
        pack((_describe, job))


def test_a_worker_is_sent_what_it_lacks(
    job: _Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    send = pool_module._Process.send

    def count(worker: pool_module._Process, request: Request) -> None:
        sent.append(len(request.contents))
        send(worker, request)

    monkeypatch.setattr(pool_module._Process, "send", count)
    files = [tmp_path / f"{number}" for number in range(3)]
    for file in files:
        file.write_text(f"{file.name}" * 100)
    jobs = [_Job(_Input(file), tmp_path) for file in files]
    with Pool(1) as pool:
        one, again = (pool.map(_paths, jobs[:1])[0].get() for _ in range(2))
        assert one == again != (str(files[0]), 1)
        assert sent == [1, 0]
        monkeypatch.setattr(executor, "_KEPT_BYTES", 250)
        # The first is forgotten when there are three.
        kept = [outcome.get()[1] for outcome in pool.map(_paths, jobs[1:])]
        assert kept == [2, 2]
        assert pool.map(_paths, jobs[:1])[0].get()[1] == 2
        assert sent == [1, 0, 1, 1, 1]
        # Changed.
        files[0].write_text("other")
        assert pool.map(_paths, jobs[:1])[0].get()[0] != one[0]


def test_errors_name_files_as_the_sender_does(job: _Job) -> None:
    with Pool(1) as pool, pytest.raises(CommandError) as caught:
        pool.map(_fail, [job])[0].get()
    assert caught.value.reproduce == f"false {job.of.file}"


def test_another_tool_ends_the_run(job: _Job, tmp_path: Path) -> None:
    """As a node has it that was set up differently."""
    tool = tmp_path / "clang"
    tool.write_text("one")
    parcel = pack((_fail, dataclasses.replace(job, tool=tool)))
    store = Store(tmp_path / "elsewhere")
    os.utime(tool, (1, 1))
    assert store.unpack(parcel.message)[1].tool == tool
    tool.write_text("two")
    with pytest.raises(NodeError, match=rf"node .*: {tool} is another one than .*SHA-256 7692c3ad"):
        store.unpack(parcel.message)
    tool.unlink()
    with pytest.raises(NodeError, match=f"{tool} is missing"):
        store.unpack(parcel.message)


def test_large_files_come_first_and_values_are_kept(tmp_path: Path) -> None:
    files = [tmp_path / str(size) for size in (10, 30, 20)]
    for file in files:
        file.write_text("x" * int(file.name))
    done = []
    with Pool(1) as pool:
        outcomes = pool.map(
            _size, [_Input(file) for file in files], keep=lambda _, size: done.append(size)
        )
    assert [outcome.get() for outcome in outcomes] == [10, 30, 20]
    assert done == [30, 20, 10]


def _size(of: _Input) -> int:
    return of.file.stat().st_size


def _remove(path: Path) -> None:
    path.unlink()


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _make_huge(path: Path) -> None:
    """Larger than what is read; nothing but its size is on the disk."""
    os.truncate(path, (1 << 30) + 1)


_UNREADABLE = (_remove, _make_folder, _make_pipe, _make_huge)


@pytest.mark.parametrize("workers", [Pool, functools.partial(RayExecutor, LOCAL)])
def test_a_file_that_cannot_be_read_costs_its_item_once(
    workers: Callable[..., Executor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a module's that is removed while a training runs."""
    files = [tmp_path / name for name in ("first", *(one.__name__ for one in _UNREADABLE), "last")]
    for file in files:
        file.write_text("x" * (100 if file.name == "first" else 10))
    jobs = [_Input(file) for file in files]

    def keep(job: _Input, _: int) -> None:
        # The largest is first: with the others packed, it changes their files.
        if job.file.name == "first":
            for spoil, file in zip(_UNREADABLE, files[1:], strict=False):
                spoil(file)

    with workers(workers=1) as executor:
        outcomes = executor.map(_size, jobs, keep=keep, timeout_s=60.0)
        assert [type(one.error) for one in outcomes] == [
            NoneType,
            *(FileNotFoundError, IsADirectoryError, OSError, OSError),
            NoneType,
        ]
        for file, outcome in zip(files[1:-1], outcomes[1:-1], strict=True):
            assert isinstance(outcome.error, OSError)
            assert str(outcome.error.filename) == str(file)
        # The last task of a call, too, and the worker lives on.
        assert "died" not in caplog.text
        assert executor.map(_size, [jobs[0]])[0].get() == 100


def test_a_call_ends_whose_last_file_cannot_be_read(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first", "last")]
    for file in files:
        file.write_text(file.name)
    with Pool(1) as pool:
        one, other = pool.map(
            _size, [_Input(file) for file in files], keep=lambda *_: files[1].unlink()
        )
    assert one.get() == 5
    assert isinstance(other.error, FileNotFoundError)
