# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Applies the patch series to LLVM's source, in a git repository of its own.

The repository `build/llvm-22.1.8` has one commit with the pristine source, then one commit a patch.
People work on the patches there, with plain git. `apply` never throws away work that has not been
written back to the series (tools/patches/series refresh).

The repository has a stamp of the series that it holds. `run.memo` does not fit: it would make the
repository again where the stamp is missing, and lose the work.
"""

import hashlib
import re
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from absl import logging

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import atomic_directory, exclusive, write_text
from compiler_opt_perf.run.llvm import LLVM_VERSION
from compiler_opt_perf.toolchain.layout import BUILD, PATCHES, ToolchainError
from compiler_opt_perf.toolchain.source import llvm_source

_BRANCH = "patched"
BASE = "refs/overlay/base"
APPLIED = "refs/overlay/applied"
# Commits are the same on every machine: hashes depend only on the source and the patches.
_IDENTITY = {"NAME": "compiler-opt-perf", "EMAIL": "compiler-opt-perf@localhost"}
_EPOCH = "2025-01-14T00:00:00+0000"


class PatchError(ToolchainError):
    """A patch does not apply, the series is inconsistent, or work would be lost."""


@dataclass(frozen=True)
class Series:
    """The patches of one LLVM release.

    Attributes:
      directory: folder with the patches and the file `series`, which lists them in order.
    """

    directory: Path

    def patches(self) -> list[Path]:
        """The patch files in order of application.

        Raises:
          PatchError: `series` is missing, names a file that is missing, or omits a patch.
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
      source: a pristine LLVM tree of the same release, which is only read.
      directory: the repository, which `apply` makes if it does not exist.
    """

    def __init__(self, series: Series, source: Path, directory: Path):
        self.series = series
        self.source = source
        self.directory = directory

    @classmethod
    def in_build(cls, build: Path = BUILD) -> Self:
        """The tree `build/llvm-22.1.8` of this release's series; fetches the source if needed.

        Raises:
          ToolchainError: the source is not available.
        """
        tree = cls(Series(PATCHES), llvm_source(build=build), build / f"llvm-{LLVM_VERSION}")
        logging.debug("Patched tree %s from %s", tree.directory, tree.source)
        return tree

    def apply(self, discard: bool = False) -> Path:
        """Makes the tree equal to the series; unchanged files keep their times.

        Does nothing if neither the series nor the source has changed since the last call. Work in
        progress then stays in the tree and is built.

        Args:
          discard: throw away the tree's commits and edits that are not in the series.

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

    def changed_files(self) -> list[str]:
        """The files of the tree as it is now that are new or differ from the pristine source."""
        changed = self._git("diff", "--name-only", BASE, "--")
        untracked = self._git("ls-files", "--others", "--exclude-standard")
        return sorted({*changed.splitlines(), *untracked.splitlines()})

    def _create(self) -> None:
        self._git("init", "--quiet", f"--initial-branch={_BRANCH}")
        # The source is committed byte by byte: its own .gitattributes must not convert anything.
        attributes = self.directory / ".git" / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* -text\n")

    def _commit_base(self) -> str:
        """Commits the pristine source; returns the commit."""
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
        """Commits all patches without touching the working tree; returns the last commit."""
        patches = self.series.patches()
        base = self._commit_base()
        self._git("update-ref", BASE, base)
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
        self._git("update-ref", APPLIED, commit)
        write_text(self._stamp(), self._key())

    def _refuse_to_lose_work(self) -> None:
        edits = self._git("status", "--porcelain").strip()
        commits = self._git("log", "--format=%h %s", f"{APPLIED}..HEAD").strip()
        if edits or commits:
            raise PatchError(
                f"{self.directory}: the series has changed, and applying it would throw away the "
                f"work below. {self._carry_over()}. Drop it with "
                "tools/patches/series apply --discard:\n"
                f"{commits}\n{edits}".rstrip()
            )

    def _carry_over(self) -> str:
        """Instructions for carrying work in the tree over to a changed series."""
        work = self.directory.with_name(f"{self.directory.name}.work")
        return (
            f"To keep work: in {self.directory}, commit it and run git format-patch -o {work} "
            f"{APPLIED}; run tools/patches/series apply --discard; in the tree, git am --3way "
            f"--keep-non-patch {work}/*.patch; then run tools/patches/series refresh"
        )

    def _lock(self) -> AbstractContextManager[None]:
        return exclusive(self.directory.with_name(f"{self.directory.name}.lock"))

    def _key(self) -> str:
        origin = self.source.with_name(self.source.name + ".origin")
        source = origin.read_text() if origin.is_file() else str(self.source)
        return f"{source}\n{self.series.digest()}\n"

    def _stamp(self) -> Path:
        return self.directory / ".git" / "overlay-applied"

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
