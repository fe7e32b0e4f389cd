# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The patch series: applies it to a tree of its own, writes it back from there, verifies it.

`build/llvm-22.1.8` is a git repository: one commit holds the pristine source, then comes one commit
a patch. Work on the patches happens there, with plain git; `refresh` writes the commits back to
`llvm_patches/22.1.8` and `apply` never throws away what has not been written back.

The series has parts that build on one another and could be sent upstream one after the other; each
has a folder. The last line of a commit's message says which it belongs to: `Part: profile`.

One file of more than 400 lines, for it is one class: what applies, writes, verifies and exports the
series has to agree on the refs and the stamp that say which series the repository holds. The stamp
is no `memo`: without it, the repository is not made anew, for it may hold work.
"""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from absl import logging

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_directory, atomic_write, exclusive, write_text
from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain.layout import BUILD, PATCHES, ToolchainError
from compiler_opt_perf.toolchain.source import llvm_source

_BRANCH = "patched"
_BASE = "refs/overlay/base"
_APPLIED = "refs/overlay/applied"
# Commits are the same on every machine: hashes depend only on the source and the patches.
_IDENTITY = {"NAME": "compiler-opt-perf", "EMAIL": "compiler-opt-perf@localhost"}
_EPOCH = "2025-01-14T00:00:00+0000"
_FORMAT = ("--zero-commit", "--no-signature", "--no-numbered", "--full-index")

_PART = re.compile(r"^Part: (\S+)\s*\Z", re.MULTILINE)
# In the order of application.
PARTS = ("fixes", "profile", "features")


class PatchError(ToolchainError):
    """A patch does not apply, the series is inconsistent, or work would be lost."""


@dataclass(frozen=True)
class Series:
    """The patches of one LLVM release: a folder with `series` and the files it names."""

    directory: Path

    def patches(self) -> list[Path]:
        """The patch files in order of application.

        Raises:
          PatchError: no series file, a file it names is missing, or a patch it does not name.
        """
        series = self.directory / "series"
        if not series.is_file():
            raise PatchError(
                f"{series}: no such file; it lists the patches, one a line: fixes/0001-....patch"
            )
        lines = (line.strip() for line in series.read_text().splitlines())
        names = [line for line in lines if line and not line.startswith("#")]
        for name in names:
            if not (self.directory / name).is_file():
                raise PatchError(
                    f"{series}: names {name}, which is not there; restore the file or remove the "
                    "line"
                )
        for path in sorted(self.directory.rglob("*.patch")):
            if str(path.relative_to(self.directory)) not in names:
                raise PatchError(
                    f"{path}: not named in {series}; add the line where it belongs or remove the "
                    "file"
                )
        return [self.directory / name for name in names]

    def digest(self) -> str:
        """A digest of the patches and their order."""
        digest = hashlib.sha256()
        for patch in self.patches():
            name = patch.relative_to(self.directory)
            digest.update(f"{name}\n".encode() + patch.read_bytes())
        return digest.hexdigest()


class PatchedTree:
    """The git repository with the patched source.

    Args:
      series: the patches.
      source: a pristine LLVM tree of the same release, only read.
      directory: where the repository is or will be.
    """

    def __init__(self, series: Series, source: Path, directory: Path):
        self.series = series
        self.source = source
        self.directory = directory

    def apply(self, discard: bool = False) -> Path:
        """Makes the tree equal to the series; files that do not change keep their times.

        Does nothing when neither the series nor the source have changed since the last time, so
        that work in progress in the tree stays and is built.

        Args:
          discard: throw away commits and edits in the tree that are not in the series.

        Returns:
          The tree's directory.

        Raises:
          PatchError: a patch does not apply, or work would be lost.
        """
        with self._lock():
            if not (self.directory / ".git").is_dir():
                with atomic_directory(self.directory) as partial:
                    fresh = PatchedTree(self.series, self.source, partial)
                    fresh._create()
                    fresh._check_out(fresh._commit_series())
                return self.directory
            if not discard and self._stamp().is_file():
                if self._stamp().read_text() == self._key():
                    return self.directory
                self._refuse_to_lose_work()
            self._check_out(self._commit_series())
        return self.directory

    def refresh(self) -> list[Path]:
        """Writes the tree's commits to the series' folder, in canonical form.

        Returns:
          The patch files written.

        Raises:
          PatchError: the series is not the one that was applied, edits are not committed, or the
            history is not linear.
        """
        with self._lock():
            self._refuse_to_overwrite_series()
            edits = self._git("status", "--porcelain").strip()
            if edits:
                raise PatchError(
                    f"{self.directory}: these edits are in no commit yet; commit them (git commit, "
                    f"or git commit --fixup and git rebase -i {_BASE}), then refresh:\n{edits}"
                )
            if self._git("merge-base", _BASE, "HEAD").strip() != self._resolve(_BASE) or self._git(
                "rev-list", "--merges", f"{_BASE}..HEAD"
            ):
                raise PatchError(
                    f"{self.directory}: its history is not a linear sequence of commits on the "
                    f"pristine source; rebase it: git rebase {_BASE}"
                )
            self._write_series()
            self._git("update-ref", _APPLIED, "HEAD")
            write_text(self._stamp(), self._key())
        return self.series.patches()

    def verify(self) -> None:
        """Checks that the series applies and is what `refresh` would write.

        Raises:
          PatchError: naming the first patch that differs.
        """
        self.apply()
        patches = self.series.patches()
        with self._lock(), tempfile.TemporaryDirectory() as folder:
            expected = self._format_patches(self._commit_series(), Path(folder))
            for patch, name in zip(patches, expected, strict=True):
                if patch != self.series.directory / name:
                    raise PatchError(f"{patch}: should be named {name}; {_REMEDY}")
                canonical = Path(folder) / name
                if patch.read_bytes() != canonical.read_bytes():
                    line = _first_difference(patch.read_text(), canonical.read_text())
                    raise PatchError(f"{patch}:{line}: not in canonical form; {_REMEDY}")

    def export(self, directory: Path, files: Mapping[str, Mapping[str, bytes]]) -> list[Path]:
        """Writes the series for `git am` on a complete tree, without the lines that name parts.

        Args:
          directory: where to write the patches, 0001-... and so on.
          files: subject of a patch to the files that it adds besides, by their paths.

        Raises:
          PatchError: a patch does not apply.
        """
        self.apply()
        directory.mkdir(parents=True, exist_ok=True)
        with self._lock(), tempfile.TemporaryDirectory() as scratch:
            index = str(Path(scratch) / "index")
            base = last = self._commit_base()
            self._git("read-tree", base, index=index)
            for patch in self.series.patches():
                commit = self._commit_patch(patch, last, index, Path(scratch))
                last = self._commit_export(commit, last, files, index, Path(scratch))
            output = self._git(
                "format-patch", *_FORMAT, f"--output-directory={directory.absolute()}",
                f"{base}..{last}",
            )  # fmt: skip
        return [Path(line) for line in output.splitlines()]

    def _commit_export(
        self,
        commit: str,
        parent: str,
        files: Mapping[str, Mapping[str, bytes]],
        index: str,
        scratch: Path,
    ) -> str:
        """`commit` on `parent` with `files`, and without the line that names its part."""
        message = self._git("show", "-s", "--format=%B", commit)
        for path, content in files.get(message.partition("\n")[0], {}).items():
            (scratch / "file").write_bytes(content)
            blob = self._git("hash-object", "-w", str(scratch / "file")).strip()
            self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", index=index)
        (scratch / "message").write_text(_PART.sub("", message).rstrip() + "\n")
        author, email, date = self._git("show", "-s", "--format=%an%n%ae%n%aI", commit).split("\n")[
            :3
        ]
        env = {
            "GIT_AUTHOR_NAME": author,
            "GIT_AUTHOR_EMAIL": email,
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_DATE": date,
        }
        tree = self._git("write-tree", index=index).strip()
        return self._git(
            "commit-tree", tree, "-p", parent, "-F", str(scratch / "message"), env=env
        ).strip()

    def changed_files(self) -> list[str]:
        """Files of the tree, as it is now, that differ from the pristine source or are new."""
        changed = self._git("diff", "--name-only", _BASE, "--")
        untracked = self._git("ls-files", "--others", "--exclude-standard")
        return sorted({*changed.splitlines(), *untracked.splitlines()})

    def commits(self) -> list[tuple[str, str]]:
        """(hash, message) of each commit after the pristine source, in the tree as it is now."""
        return self._messages("HEAD")

    def size(self, commit: str) -> int:
        """Numbers of lines that a commit adds and removes."""
        rows = self._git("show", "--format=", "--numstat", commit).splitlines()
        return sum(int(count) for row in rows for count in row.split()[:2])

    def changes(self, commit: str, context: int = 3) -> str:
        """The diff of a commit, with as many lines around each change."""
        return self._git("show", "--format=", f"--unified={context}", commit)

    def files_of(self, commit: str) -> list[str]:
        """Files that a commit changes, adds or removes."""
        return self._git("show", "--format=", "--name-only", "--no-renames", commit).splitlines()

    def write_files(self, commit: str, files: Iterable[str], directory: Path) -> set[str]:
        """Writes those of `files` that there are at a commit to `directory`; returns which."""
        found = self._git("ls-tree", "-r", "--name-only", commit, "--", *files).splitlines()
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            self._git(
                "checkout", "--quiet", commit, "--", *found,
                work_tree=directory, index=str(Path(scratch) / "index"),
            )  # fmt: skip
        return set(found)

    def check_out(self, commit: str) -> None:
        """Puts the tree at one of `commits`; the next `apply` brings it back to the series."""
        with self._lock():
            self._stamp().unlink(missing_ok=True)
            self._git("reset", "--quiet", "--hard", commit)

    def _messages(self, last: str) -> list[tuple[str, str]]:
        """(hash, message) of each commit after the pristine source up to `last`."""
        text = self._git("log", "--reverse", "-z", "--format=%H%n%B", f"{_BASE}..{last}")
        entries = (entry.partition("\n") for entry in text.split("\0") if entry)
        return [(commit, message) for commit, _, message in entries]

    def _create(self) -> None:
        self._git("init", "--quiet", f"--initial-branch={_BRANCH}")
        # The source is committed byte by byte: its own .gitattributes must not convert anything.
        attributes = self.directory / ".git" / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* -text\n")

    def _commit_base(self) -> str:
        """The commit that holds the pristine source."""
        with tempfile.TemporaryDirectory() as scratch:
            index = str(Path(scratch) / "index")
            self._git("add", "--all", "--force", ".", work_tree=self.source, index=index)
            tree = self._git("write-tree", index=index).strip()
        identity = {f"GIT_AUTHOR_{name}": value for name, value in _IDENTITY.items()}
        return self._git(
            "commit-tree", tree, "-m", f"LLVM {LLVM_VERSION}",
            env={**identity, "GIT_AUTHOR_DATE": _EPOCH, "GIT_COMMITTER_DATE": _EPOCH},
        ).strip()  # fmt: skip

    def _commit_series(self) -> str:
        """Makes the commits, without touching the work tree; returns the last one."""
        patches = self.series.patches()
        base = self._commit_base()
        self._git("update-ref", _BASE, base)
        commit = base
        with tempfile.TemporaryDirectory() as scratch:
            index = str(Path(scratch) / "index")
            self._git("read-tree", base, index=index)
            for patch in patches:
                commit = self._commit_patch(patch, commit, index, Path(scratch))
        return commit

    def _commit_patch(self, patch: Path, parent: str, index: str, scratch: Path) -> str:
        message, diff = scratch / "message", scratch / "diff"
        with open(patch, "rb") as stream:
            try:
                # -b keeps prefixes such as [MLGO] in the subject.
                info = self._git("mailinfo", "-b", str(message), str(diff), stdin=stream)
            except CommandError as error:
                raise PatchError(
                    f"{patch}: not in the form of git format-patch: {error}"
                ) from error
        header = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
        if not {"Author", "Email", "Subject", "Date"} <= header.keys():
            raise PatchError(
                f"{patch}: From, Date or Subject is missing; write it with git format-patch"
            )
        try:
            self._git("apply", "--cached", "--whitespace=nowarn", str(diff), index=index)
        except CommandError as error:
            raise PatchError(self._explain_failure(patch, error)) from error
        message.write_text(f"{header['Subject']}\n\n{message.read_text()}".rstrip() + "\n")
        env = {
            "GIT_AUTHOR_NAME": header["Author"],
            "GIT_AUTHOR_EMAIL": header["Email"],
            "GIT_AUTHOR_DATE": header["Date"],
            "GIT_COMMITTER_DATE": header["Date"],
        }
        tree = self._git("write-tree", index=index).strip()
        return self._git("commit-tree", tree, "-p", parent, "-F", str(message), env=env).strip()

    def _explain_failure(self, patch: Path, error: CommandError) -> str:
        found = re.search(r"patch failed: (.+):(\d+)", error.stderr)
        other = re.search(r"error: (.+)", error.stderr)
        where = (
            f"{found[1]}: the hunk at line {found[2]} does not match"
            if found
            else (other[1] if other else error.reason)
        )
        return (
            f"{patch}: does not apply to LLVM {LLVM_VERSION} with the patches before it: {where}. "
            f"Move it and the later ones to another folder, with their lines of "
            f"{self.series.directory / 'series'}, run tools/patches/series apply, bring them "
            f"back in {self.directory} with git am --3way --keep-non-patch, and run "
            "tools/patches/series refresh"
        )

    def _check_out(self, commit: str) -> None:
        # Without the stamp the tree counts as unfinished: if this process is killed, the next run
        # checks out again. Only then can git's lock be stale; any other is of a running git.
        lock = self.directory / ".git" / "index.lock"
        if not self._stamp().is_file():
            lock.unlink(missing_ok=True)
        elif lock.exists():
            raise PatchError(
                f"{lock}: another git is at work in the tree; wait for it, or remove the file if "
                "none runs"
            )
        self._stamp().unlink(missing_ok=True)
        # reset --hard writes only the files that differ, so that ninja rebuilds only those.
        self._git("reset", "--quiet", "--hard", commit)
        self._git("clean", "--quiet", "--force", "-d")
        self._git("update-ref", _APPLIED, commit)
        write_text(self._stamp(), self._key())

    def _write_series(self) -> None:
        """Writes HEAD's commits as patches; removes the old ones when the new ones are complete."""
        directory = self.series.directory
        with tempfile.TemporaryDirectory() as folder:
            names = self._format_patches("HEAD", Path(folder))
            for name in names:
                with atomic_write(directory / name) as temporary:
                    shutil.copyfile(Path(folder) / name, temporary)
        write_text(directory / "series", "".join(f"{name}\n" for name in names))
        for old in directory.rglob("*.patch"):
            if str(old.relative_to(directory)) not in names:
                old.unlink()

    def _refuse_to_lose_work(self) -> None:
        edits = self._git("status", "--porcelain").strip()
        commits = self._git("log", "--format=%h %s", f"{_APPLIED}..HEAD").strip()
        if edits or commits:
            raise PatchError(
                f"{self.directory}: the series has changed, and applying it would throw away the "
                f"work below. {self._carry_over()}. Drop it with "
                "tools/patches/series apply --discard:\n"
                f"{commits}\n{edits}".rstrip()
            )

    def _refuse_to_overwrite_series(self) -> None:
        if not self._stamp().is_file():
            raise PatchError(
                f"{self.directory}: the series has not been applied here, or not completely; run "
                "tools/patches/series apply"
            )
        if self._stamp().read_text() != self._key():
            raise PatchError(
                f"{self.series.directory}: the series has changed since it was applied; refresh "
                f"would overwrite it with the commits of {self.directory}. If the change is not "
                "wanted (an edited patch, or a refresh that was interrupted), undo it with git "
                "restore and git clean, and refresh again. If it is, and there is no work in the "
                f"tree, run tools/patches/series apply. {self._carry_over()}"
            )

    def _carry_over(self) -> str:
        """Instructions for carrying work in the tree over to a changed series."""
        work = self.directory.with_name(f"{self.directory.name}.work")
        return (
            f"To keep work: in {self.directory}, commit it and run git format-patch -o {work} "
            f"{_APPLIED}; run tools/patches/series apply --discard; in the tree, git am --3way "
            f"--keep-non-patch {work}/*.patch; then run tools/patches/series refresh"
        )

    def _lock(self) -> AbstractContextManager[None]:
        return exclusive(self.directory.with_name(f"{self.directory.name}.lock"))

    def _format_patches(self, commit: str, folder: Path) -> list[str]:
        """Writes the patches up to `commit` to `folder`; returns their names, in order.

        Raises:
          PatchError: a commit names no part of the series, or the parts are not in order.
        """
        names: list[str] = []
        numbers = dict.fromkeys(PARTS, 0)
        last = 0
        for patch, message in self._messages(commit):
            subject = message.partition("\n")[0]
            part = part_of(message)
            if part not in PARTS:
                raise PatchError(
                    f"{self.directory}: the commit '{subject}' does not say which part of the "
                    f"series it belongs to; end its message with a line 'Part: <part>', where the "
                    f"part is one of {', '.join(PARTS)}"
                )
            if PARTS.index(part) < last:
                raise PatchError(
                    f"{self.directory}: the commit '{subject}' belongs to the part '{part}', but "
                    f"comes after one of '{PARTS[last]}'; move it: git rebase -i {_BASE}"
                )
            last = PARTS.index(part)
            numbers[part] += 1
            written = self._git(
                "format-patch", *_FORMAT, "-1", f"--start-number={numbers[part]}",
                f"--output-directory={folder / part}", patch,
            )  # fmt: skip
            names.append(str(Path(written.strip()).relative_to(folder)))
        return names

    def _key(self) -> str:
        origin = self.source.with_name(self.source.name + ".origin")
        source = origin.read_text() if origin.is_file() else str(self.source)
        return f"{source}\n{self.series.digest()}\n"

    def _stamp(self) -> Path:
        return self.directory / ".git" / "overlay-applied"

    def _resolve(self, revision: str) -> str:
        return self._git("rev-parse", revision).strip()

    def _git(
        self,
        *arguments: str,
        work_tree: Path | None = None,
        index: str | None = None,
        env: dict[str, str] | None = None,
        stdin: IO[bytes] | None = None,
    ) -> str:
        """Runs git on the repository, without the user's settings; returns what it printed."""
        repository = self.directory / ".git"
        settings = {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_INDEX_FILE": index or str(repository / "index"),
            **{f"GIT_COMMITTER_{name}": value for name, value in _IDENTITY.items()},
            **(env or {}),
        }
        # The tree can be made again: compression and a flush of each file are not worth it.
        fast = ("-c", "core.compression=0", "-c", "core.fsync=none", "-c", "gc.auto=0")
        return run_command(
            ["git", *fast, f"--git-dir={repository}",
             f"--work-tree={work_tree or self.directory}", *arguments],
            cwd=work_tree or self.directory,
            env=settings,
            stdin=stdin,
        ).stdout  # fmt: skip


_REMEDY = "run tools/patches/series apply and then tools/patches/series refresh"


def part_of(message: str) -> str:
    """The part that a commit's message names in its last line, "" if it does not."""
    found = _PART.search(message)
    return found[1] if found else ""


def _first_difference(left: str, right: str) -> int:
    lines = zip(left.splitlines(), right.splitlines(), strict=False)
    for number, (one, other) in enumerate(lines, start=1):
        if one != other:
            return number
    return min(left.count("\n"), right.count("\n")) + 1


def patched_tree(build: Path = BUILD) -> PatchedTree:
    """The repository `build/llvm-22.1.8` for this release's series; fetches the source if needed.

    Raises:
      ToolchainError: the source is not available.
    """
    tree = PatchedTree(Series(PATCHES), llvm_source(build=build), build / f"llvm-{LLVM_VERSION}")
    logging.debug("Patched tree %s from %s", tree.directory, tree.source)
    return tree
