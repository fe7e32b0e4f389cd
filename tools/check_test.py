# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of tools/check itself, on a copy without anything to check."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest


def _copy(repo_root: Path, destination: Path) -> Path:
    (destination / "tools").mkdir()
    return Path(shutil.copy(repo_root / "tools" / "check", destination / "tools"))


def test_a_second_run_says_that_it_waits(repo_root: Path, tmp_path: Path) -> None:
    check = _copy(repo_root, tmp_path)
    (tmp_path / "build").mkdir()
    with open(tmp_path / "build" / ".check.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            [check, "nosuch"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert waiting.stdout is not None
        assert "another tools/check is at work" in waiting.stdout.readline()
        assert waiting.poll() is None
    output, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 2
    assert "no step 'nosuch'" in output


@pytest.mark.compiler
def test_only_lines_that_the_series_changes_are_held_to_the_style(
    repo_root: Path, tmp_path: Path
) -> None:
    check = _copy(repo_root, tmp_path)
    (tmp_path / "tools" / "patches").mkdir()
    (tmp_path / "tools" / "patches" / "series").symlink_to("/bin/true")
    own = tmp_path / "tools" / "trace-cost" / "One.cpp"
    own.parent.mkdir()
    own.write_text("int one;\n")
    tree = tmp_path / "build" / "llvm-22.1.8"
    tree.mkdir(parents=True)

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tree, check=True, capture_output=True)

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([check, "format"], capture_output=True, text=True, timeout=60)

    git("init")
    file = tree / "one.cpp"
    file.write_text("int   upstreams ;\n")
    git("add", "one.cpp")
    git("commit", "--message=base")
    git("update-ref", "refs/overlay/base", "HEAD")
    file.write_text("int   upstreams ;\nint ours;\n")
    assert run().returncode == 0
    file.write_text("int   upstreams ;\nint   ours ;\n")
    result = run()
    assert result.returncode == 1
    assert "-int   ours ;\n+int ours;\n" in result.stdout
    assert "-int   upstreams" not in result.stdout
    own.write_text("int   one ;\n")
    assert "One.cpp:1:4: error: code should be clang-formatted" in run().stderr


def _program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _check_beside(check: Path, step: str, other: str) -> None:
    """`step` ends once `other` has touched `done`; both are given, in this order."""
    for status, headline in ((0, "All checks passed"), (1, f"FAILED: {other} (exit status 1)")):
        check.with_name("status").write_text(str(status))
        result = subprocess.run([check, step, other], capture_output=True, text=True, timeout=60)
        (check.parent.parent / "done").unlink()
        assert result.returncode == status
        assert headline in result.stdout
        # In the order of the steps.
        assert result.stdout.index("waited") < result.stdout.index(f"({other})")
        assert result.stdout.index(f"({other})") < result.stdout.index("found")


_WAIT = "while [ ! -e done ]; do sleep 0.05; done; echo waited"
_DONE = "echo found; touch done; exit $(cat tools/status)"


def test_lint_works_beside_the_build(repo_root: Path, tmp_path: Path) -> None:
    check = _copy(repo_root, tmp_path)
    _program(tmp_path / "build" / "venv" / "bin" / "cop", _WAIT)
    _program(tmp_path / "build" / "venv" / "bin" / "ruff", "")
    _program(tmp_path / "build" / "venv" / "bin" / "mypy", _DONE)
    _check_beside(check, "build", "lint")


def test_bazel_works_beside_pytest(repo_root: Path, tmp_path: Path) -> None:
    check = _copy(repo_root, tmp_path)
    _program(tmp_path / "build" / "venv" / "bin" / "pytest", _WAIT)
    _program(tmp_path / "tools" / "check-bazel", _DONE)
    _check_beside(check, "pytest", "bazel")
