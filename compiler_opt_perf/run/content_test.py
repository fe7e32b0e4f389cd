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

from compiler_opt_perf.run import content
from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.content import Content, Manifest, NodeError, Store, Tool, pack
from compiler_opt_perf.run.executor import Executor
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.ray_cluster import LOCAL, RayExecutor

_WORKERS = (Pool, functools.partial(RayExecutor, LOCAL))


@dataclass(frozen=True)
class _Input:
    """Nested inputs, like those of jobs."""

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
    message, contents = pack((_describe, job), travels=True)
    store = Store(tmp_path / "elsewhere")
    store.hold({one.digest: one.read for one in contents})
    for path in (job.of.file, tmp_path / "model" / "a", tmp_path / "events.txt"):
        path.unlink()
    (function, arrived), senders = store.unpack(message)
    assert senders[str(arrived.of.file)] == str(job.of.file)
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
    message, contents = pack(job, travels=True)
    store = Store(tmp_path / "elsewhere")
    store.hold({one.digest: one.read for one in contents})
    return store.unpack(message)[0]


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
        pack(_Input(str(job.of.file)), travels=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["model/linked", "events.txt"])
def test_links_do_not_travel(name: str, job: _Job, tmp_path: Path) -> None:
    """They could be of any file of this machine."""
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/etc/passwd")
    with Pool(1) as pool, pytest.raises(OSError, match="is a symbolic link"):
        pool.map(_describe, [job])[0].get()


def test_a_store_fetches_what_it_lacks_and_drops_what_was_used_least_recently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_KEPT_BYTES", 250)
    store = Store(tmp_path)
    fetched = []

    def hold(digest: str) -> set[str]:
        def fetch() -> dict[str, bytes]:
            fetched.append(digest)
            return {"file": b"x" * 100}

        store.hold({digest: fetch})
        return {path.name for path in tmp_path.iterdir()}

    assert hold("a") == hold("a") == {"a"}
    assert hold("b") == {"a", "b"}
    hold("a")
    assert hold("c") == {"a", "c"}
    assert fetched == ["a", "b", "c"]


@pytest.mark.parametrize("workers", _WORKERS)
def test_errors_name_files_as_the_sender_does(workers: Callable[..., Executor], job: _Job) -> None:
    with workers(workers=1) as pool, pytest.raises(CommandError) as caught:
        pool.map(_fail, [job])[0].get()
    assert caught.value.reproduce == f"false {job.of.file}"


def test_another_tool_ends_the_run(job: _Job, tmp_path: Path) -> None:
    """As a node has it that was set up differently."""
    tool = tmp_path / "clang"
    tool.write_text("one")
    message, _ = pack((_fail, dataclasses.replace(job, tool=tool)), travels=True)
    store = Store(tmp_path / "elsewhere")
    os.utime(tool, (1, 1))
    assert store.unpack(message)[0][1].tool == tool
    tool.write_text("two")
    with pytest.raises(NodeError, match=rf"node .*: {tool} differs from the .*SHA-256 7692c3ad"):
        store.unpack(message)
    tool.unlink()
    with pytest.raises(NodeError, match=f"{tool} is missing"):
        store.unpack(message)


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


_UNREADABLE = (_remove, _make_folder, _make_pipe)


@pytest.mark.parametrize("workers", _WORKERS)
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
            *(FileNotFoundError, IsADirectoryError, OSError),
            NoneType,
        ]
        for file, outcome in zip(files[1:-1], outcomes[1:-1], strict=True):
            assert isinstance(outcome.error, OSError)
            assert str(outcome.error.filename) == str(file)
        # The last task of a call, too, and the worker lives on.
        assert "died" not in caplog.text
        assert executor.map(_size, [jobs[0]])[0].get() == 100


@pytest.mark.parametrize("workers", _WORKERS)
def test_a_call_ends_whose_last_file_cannot_be_read(
    workers: Callable[..., Executor], tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("first", "last")]
    for file in files:
        file.write_text(file.name)
    with workers(workers=1) as executor:
        one, other = executor.map(
            _size, [_Input(file) for file in files], keep=lambda *_: files[1].unlink()
        )
    assert one.get() == 5
    assert isinstance(other.error, FileNotFoundError)
