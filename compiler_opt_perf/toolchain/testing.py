# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small series of patches for tests, with real git."""

import subprocess
from pathlib import Path

FIRST = "fixes/0001-MLGO-Edit-one.patch"
SECOND = "profile/0001-Add-three.patch"
LINES = "".join(f"line {number}\n" for number in range(1, 31))


def git(directory: Path, *arguments: str) -> str:
    """Runs git in a directory, as somebody; returns what it prints. Raises CalledProcessError."""
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    ).stdout


def commit(directory: Path, message: str, **files: str) -> None:
    """Commits all of a directory, after writing `files`: the text of NAME.cpp by NAME."""
    for name, text in files.items():
        (directory / f"{name}.cpp").write_text(text)
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", message)


def write_source(directory: Path) -> Path:
    """Makes the source that the series changes: one.cpp and two.cpp. Returns the directory."""
    directory.mkdir()
    (directory / "one.cpp").write_text(LINES)
    (directory / "two.cpp").write_text(LINES)
    return directory


def commit_series(directory: Path) -> None:
    """Commits the changes of FIRST and of SECOND to a copy of the source."""
    message = "[MLGO] Edit one\n\nBecause.\n\nPart: fixes"
    commit(directory, message, one=LINES.replace("line 5\n", "5\n"))
    commit(directory, "Add three\n\nPart: profile", three="new\n")
