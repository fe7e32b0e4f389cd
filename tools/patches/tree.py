# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The patched tree as a workplace: writes its commits back to the series, checks, exports them.

The series has parts that build on one another and could be sent upstream one after the other. Each
part has a folder. The last line of a commit's message names the commit's part: `Part: profile`.
"""

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from compiler_opt_perf.run.files import atomic_write, write_text
from compiler_opt_perf.toolchain.patches import APPLIED, BASE, PatchedTree, PatchError

# In the order of application.
PARTS = ("fixes", "profile", "features")

_PART = re.compile(r"^Part: (\S+)\s*\Z", re.MULTILINE)
_FORMAT = ("--zero-commit", "--no-signature", "--no-numbered", "--full-index")
_REMEDY = "run tools/patches/series apply and then tools/patches/series refresh"


class WorkingTree(PatchedTree):
    """The git repository with the patched source, in which people edit the patches as commits."""

    def refresh(self) -> list[Path]:
        """Writes the tree's commits to the series' folder, in canonical form.

        Returns:
          The patch files written.

        Raises:
          PatchError: the series has changed since it was applied, edits are not committed, or
            the history is not linear.
        """
        with self._lock():
            self._refuse_to_overwrite_series()
            edits = self._git("status", "--porcelain").strip()
            if edits:
                raise PatchError(
                    f"{self.directory}: these edits are in no commit yet; commit them (git commit, "
                    f"or git commit --fixup and git rebase -i {BASE}), then refresh:\n{edits}"
                )
            forked = self._git("merge-base", BASE, "HEAD") != self._git("rev-parse", BASE)
            if forked or self._git("rev-list", "--merges", f"{BASE}..HEAD"):
                raise PatchError(
                    f"{self.directory}: its history is not a linear sequence of commits on the "
                    f"pristine source; rebase it: git rebase {BASE}"
                )
            self._write_series()
            self._git("update-ref", APPLIED, "HEAD")
            write_text(self._stamp(), self._key())
        return self.series.patches()

    def verify(self) -> None:
        """Checks that the series applies and that `refresh` would write the same files.

        Raises:
          PatchError: a patch does not apply, or differs from what `refresh` writes.
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
        """Writes the series for `git am` on a complete LLVM tree, without the `Part:` lines.

        Args:
          directory: folder for the patches, which are numbered through: 0001-..., 0002-...
          files: further files that a patch adds, by the patch's subject and by path.

        Returns:
          The patch files written, in order.

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
        """Commits `commit` again, on `parent`, with its `files` and without its `Part:` line."""
        message = self._git("show", "-s", "--format=%B", commit)
        for path, content in files.get(message.partition("\n")[0], {}).items():
            (scratch / "file").write_bytes(content)
            blob = self._git("hash-object", "-w", str(scratch / "file")).strip()
            self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", index=index)
        (scratch / "message").write_text(_PART.sub("", message).rstrip() + "\n")
        identity = self._git("show", "-s", "--format=%an%n%ae%n%aI", commit)
        author, email, date = identity.splitlines()
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

    def commits(self) -> list[tuple[str, str]]:
        """(hash, message) of each commit after the pristine source, in the tree as it is now."""
        return self._messages("HEAD")

    def size(self, commit: str) -> int:
        """The number of lines that a commit adds, plus the number that it removes."""
        rows = self._git("show", "--format=", "--numstat", commit).splitlines()
        return sum(int(count) for row in rows for count in row.split()[:2])

    def changes(self, commit: str, context: int = 3) -> str:
        """The diff of a commit, with `context` unchanged lines around each change."""
        return self._git("show", "--format=", f"--unified={context}", commit)

    def files_of(self, commit: str) -> list[str]:
        """The files that a commit changes, adds or removes."""
        return self._git("show", "--format=", "--name-only", "--no-renames", commit).splitlines()

    def write_files(self, commit: str, files: Iterable[str], directory: Path) -> set[str]:
        """Writes the `files` that a commit has to `directory`; returns their names."""
        found = self._git("ls-tree", "-r", "--name-only", commit, "--", *files).splitlines()
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            self._git(
                "checkout", "--quiet", commit, "--", *found,
                work_tree=directory, index=str(Path(scratch) / "index"),
            )  # fmt: skip
        return set(found)

    def check_out(self, commit: str) -> None:
        """Checks out one of `commits`; the next `apply` returns to the whole series."""
        with self._lock():
            self._stamp().unlink(missing_ok=True)
            self._git("reset", "--quiet", "--hard", commit)

    def _messages(self, last: str) -> list[tuple[str, str]]:
        """(hash, message) of each commit after the pristine source up to `last`."""
        text = self._git("log", "--reverse", "-z", "--format=%H%n%B", f"{BASE}..{last}")
        entries = (entry.partition("\n") for entry in text.split("\0") if entry)
        return [(commit, message) for commit, _, message in entries]

    def _write_series(self) -> None:
        """Writes HEAD's commits as patches, and only then removes the patches that are gone."""
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

    def _refuse_to_overwrite_series(self) -> None:
        """Raises PatchError if the tree does not hold the series as its folder does."""
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
                    f"comes after one of '{PARTS[last]}'; move it: git rebase -i {BASE}"
                )
            last = PARTS.index(part)
            numbers[part] += 1
            written = self._git(
                "format-patch", *_FORMAT, "-1", f"--start-number={numbers[part]}",
                f"--output-directory={folder / part}", patch,
            )  # fmt: skip
            names.append(str(Path(written.strip()).relative_to(folder)))
        return names


def part_of(message: str) -> str:
    """The part that the last line of a commit's message names; "" if it names none."""
    found = _PART.search(message)
    return found[1] if found else ""


def _first_difference(left: str, right: str) -> int:
    """The number of the first line that differs, from 1."""
    lines = zip(left.splitlines(), right.splitlines(), strict=False)
    for number, (old, new) in enumerate(lines, start=1):
        if old != new:
            return number
    return min(left.count("\n"), right.count("\n")) + 1
