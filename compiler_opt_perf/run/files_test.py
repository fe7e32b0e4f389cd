# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import contextlib
import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_opt_perf.run.files import (
    FileWriteError,
    atomic_directory,
    atomic_write,
    copy_folder,
    exclusive,
    explained,
    files_of,
    has_sha256,
    input_lines,
    is_folder_name,
    make_executable,
    read_input,
    sha256,
    write_json,
)


def test_content_appears_under_its_final_name_only_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "result.txt"
    with atomic_write(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
    assert target.read_text() == "half"
    assert os.listdir(target.parent) == ["result.txt"]


def test_a_failure_keeps_the_old_file_and_leaves_no_litter(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    target.write_text("old")
    with pytest.raises(ValueError, match="broken"), atomic_write(target) as temporary:
        temporary.write_text("new")
        raise ValueError("broken")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_a_really_full_device_is_named(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    expected = pytest.raises(FileWriteError, match=r"result.txt: no space left.*run the command")
    with expected, atomic_write(target), open("/dev/full", "w") as full:
        full.write("x")
    assert os.listdir(tmp_path) == []


def test_other_write_errors_are_named_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileWriteError, match="below.json: cannot be written"):
        write_json(tmp_path / "file" / "below.json", {})


def test_what_is_wrong_with_other_files_is_not_blamed_on_this_one(tmp_path: Path) -> None:
    target = tmp_path / "out" / "result"
    for write in (atomic_write, atomic_directory):
        for absent in (tmp_path / "in" / "absent.txt", target.with_name("absent.txt")):
            with pytest.raises(FileNotFoundError, match="absent.txt"), write(target):
                absent.read_text()
        with pytest.raises(FileWriteError, match="result: cannot be written"), write(target) as one:
            (one / "below" / "x").write_text("")
    assert os.listdir(target.parent) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOENT, "No such file", "a.txt"), "a.txt: No such file"),
        (OSError(errno.ENOENT, "No such file", b"a.txt"), "a.txt: No such file"),
        (
            OSError(errno.EROFS, "Read-only", Path("ro/out")),
            "ro/out: Read-only; name another one, ",
        ),
        (PermissionError(errno.EACCES, "Denied", "x"), "x: Denied; name another one, or change it"),
        (OSError(errno.ENOSPC, "No space", "x"), "x: no space left on the device; free some (or "),
        (OSError(errno.ENOSPC, "No space"), "the output's folder, or {}: no space left on the de"),
        (OSError(errno.EBADF, "Bad descriptor", 7), "open file 7: Bad descriptor"),
        (OSError(errno.EPIPE, "Broken pipe"), "Broken pipe"),
        (OSError("a text of its own"), "a text of its own"),
        (ValueError("of another kind"), "of another kind"),
    ],
)
def test_errors_of_the_system_are_messages(error: Exception, message: str) -> None:
    expected = message.format(f"{tempfile.gettempdir()} (TMPDIR)")
    assert explained(error).startswith(expected) and "[Errno" not in explained(error)


def test_there_is_a_directory_at_any_time(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with atomic_directory(target) as temporary:
        (temporary / "file").touch()
    missed, ended = [], threading.Event()

    def look() -> None:
        while not ended.is_set():
            if not (target / "file").exists():
                missed.append(1)

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(300):
        with atomic_directory(target) as temporary:
            (temporary / "file").touch()
    ended.set()
    reader.join()
    assert not missed
    assert os.listdir(tmp_path) == ["model"]


def test_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for generation in ("first", "second"):
        with atomic_directory(target) as temporary:
            (temporary / generation).write_text(generation)
        assert [path.name for path in target.iterdir()] == [generation]
    with pytest.raises(FileWriteError, match="no space left"), atomic_directory(target):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert [path.name for path in target.iterdir()] == ["second"]
    assert os.listdir(tmp_path) == ["model"]


def test_what_a_killed_run_left_goes_with_the_next(tmp_path: Path) -> None:
    target = tmp_path / "model"
    (tmp_path / ".model.killed.old").mkdir()
    (tmp_path / ".model.killed.old" / "first").touch()
    (tmp_path / ".other.killed.old").mkdir()
    for _ in range(2):
        with atomic_directory(target) as temporary:
            (temporary / "second").touch()
    assert sorted(os.listdir(tmp_path)) == [".other.killed.old", "model"]


def test_a_file_that_is_too_large_has_no_sha256(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "abc"
    path.write_text("abc")
    digest = sha256(path)
    assert has_sha256(path, digest) and not has_sha256(path, digest[::-1])
    monkeypatch.setattr("compiler_opt_perf.run.files._MOST_BYTES", 2)
    assert not has_sha256(path, digest)


def test_sha256_is_the_standard_one(tmp_path: Path) -> None:
    (tmp_path / "abc").write_text("abc")
    assert sha256(tmp_path / "abc").startswith("ba7816bf8f01cfea")


def test_inputs_are_regular_files_of_a_size_that_can_be(tmp_path: Path) -> None:
    file, pipe, sparse = (tmp_path / name for name in ("file", "pipe", "sparse"))
    file.write_bytes(b"one\ntwo \xff\n")
    os.mkfifo(pipe)
    with sparse.open("wb") as stream:
        stream.truncate(20 << 30)
    assert read_input(file) == b"one\ntwo \xff\n"
    assert list(input_lines(file)) == ["one\n", "two \ufffd\n"]
    for path, message in (
        (pipe, "no regular file"),
        (Path("/dev/zero"), "no regular file"),
        (tmp_path, "Is a directory"),
        (sparse, "has more than 1,073,741,824 bytes"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(OSError, match=message) as caught:
            read_input(path)
        assert os.fspath(caught.value.filename) == os.fspath(path)
    with pytest.raises(OSError, match="has a line of more than 16,777,216 bytes"):
        list(input_lines(sparse))


@pytest.fixture(params=[0o022, 0o077, 0o027, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The user's, who may want results to be seen by nobody else."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_results_have_the_modes_that_the_umask_leaves(umask: int, tmp_path: Path) -> None:
    file, folder = tmp_path / "below" / "file", tmp_path / "folder"
    script = folder / "script"
    # Twice: one is replaced by another.
    for _ in range(2):
        with atomic_write(file) as temporary:
            private = tmp_path / "private"
            private.touch(0o600)
            # As a body does that copies or renames what another program wrote.
            shutil.copy(private, temporary)
        with atomic_directory(folder) as temporary:
            (temporary / "script").write_text("")
            make_executable(temporary / "script")
    copy_folder(folder, tmp_path / "copy")
    modes = {
        file: 0o666,
        file.parent: 0o777,
        folder: 0o777,
        script: 0o777,
        tmp_path / "copy": 0o777,
    }
    for path, most in modes.items():
        assert stat.S_IMODE(path.stat().st_mode) == most & ~umask, path


def test_files_of_a_folder_are_its_own(tmp_path: Path) -> None:
    folder, secret = tmp_path / "model", tmp_path / "secret"
    for name in ("b", "a/c", "a-b/c"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    secret.write_text("secret")
    assert files_of(folder) == sorted(path for path in folder.rglob("*") if path.is_file())
    # The folder itself may be a link: its user has named it.
    (tmp_path / "link").symlink_to(folder)
    copy_folder(tmp_path / "link", tmp_path / "copy")
    assert [path.read_text() for path in files_of(tmp_path / "copy")] == ["a/c", "a-b/c", "b"]
    for target, name in (
        (secret, "d"),
        (tmp_path, "d"),
        (Path("b"), "d"),
        (tmp_path / "missing", "a/d"),
        (secret, "a/d"),
    ):
        link = folder / name
        link.symlink_to(target)
        with pytest.raises(OSError, match="is a symbolic link; put a copy") as caught:
            files_of(folder)
        assert caught.value.filename == link
        with pytest.raises(OSError, match="is a symbolic link; put a copy"):
            copy_folder(folder, tmp_path / "other")
        assert not any((tmp_path / "other").iterdir())
        link.unlink()
        shutil.rmtree(tmp_path / "other")
    os.mkfifo(folder / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        files_of(folder)


@pytest.mark.parametrize("name", ["dev", "my-set", "a.b_c", "22", "_x", "x" * 200])
def test_names_of_folders(name: str) -> None:
    assert is_folder_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".x", "-x", "a/b", "/", "../x", "a b", "a\n", "\0", "ü", "x" * 201]
)
def test_names_that_are_no_folders(name: str) -> None:
    assert not is_folder_name(name)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_second_process_waits_for_a_lock(kind: str, tmp_path: Path) -> None:
    path = tmp_path if kind == "folder" else tmp_path / "new" / "lock"
    code = f"""
from pathlib import Path
from compiler_opt_perf.run.files import exclusive
print("waits", flush=True)
with exclusive(Path({str(path)!r})):
    pass
"""
    command = [sys.executable, "-c", code]
    with contextlib.ExitStack() as stack:
        with exclusive(path):
            other = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            )
            assert other.stdout is not None
            assert other.stdout.readline() == "waits\n"
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.5)
        assert other.wait(60.0) == 0
