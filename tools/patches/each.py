# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that each patch compiles and is formatted without the patches behind it.

A reviewer meets the patches one by one. No tree is checked out: the compiler reads the patched tree
through a virtual file system, in which the series' files are as this patch leaves them. It checks
the syntax of the translation units that the patch affects: the changed ones, and users of a changed
header.
"""

import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from absl import logging

from compiler_opt_perf.run.command import CommandError, run_command
from compiler_opt_perf.run.files import write_text
from compiler_opt_perf.toolchain.overlay import (
    EVALUATOR,
    Allowance,
    IncludeGraph,
    affected_units,
    has_development_mode,
)
from compiler_opt_perf.toolchain.patches import PatchError
from tools.patches.tree import WorkingTree, part_of

_FORMATTER = (
    "clang-format-diff-22", "-p1", "-binary=clang-format-22", "-style=LLVM", r"-regex=.*\.(cpp|h)",
)  # fmt: skip
_HEADERS = (".h", ".def", ".inc")
# The text of a header that a later patch adds, so that no user of it compiles.
_ABSENT = "#error this file comes with a later patch\n"
# A hunk of a diff: file, first line, and the lines before the first change.
_HUNK = re.compile(r"^--- (\S+).*\n.*\n@@ -(\d+).*\n((?: .*\n)*)", re.MULTILINE)
_ERROR = re.compile(r"^(?:fatal )?error: .+$|^.+?:\d+:\d+: (?:fatal )?error: .+$", re.MULTILINE)


def check_each(
    tree: WorkingTree,
    commands: Mapping[str, Sequence[str]],
    allowed: Iterable[Allowance] = (),
) -> str:
    """Compiles and formats what each commit of the tree changes, at that commit.

    Args:
      tree: the patched tree, all of it committed.
      commands: the commands that check translation units, by the unit's path in the tree.
      allowed: headers of which only the users of some names are affected.

    Returns:
      A line with the numbers of patches and compilations.

    Raises:
      PatchError: files do not compile or are formatted otherwise; the message has a line for each.
    """
    commits = tree.commits()
    touched = sorted({file for commit, _ in commits for file in tree.files_of(commit)})
    graph = IncludeGraph(tree.directory)
    allowances = {allowance.header: allowance for allowance in allowed}
    faults: list[str] = []
    compilations = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as threads:
        scratch = Path(folder) / "files"
        for number, (commit, message) in enumerate(commits, start=1):
            name = f"{part_of(message)}: {message.partition(chr(10))[0]}"
            present = tree.write_files(commit, touched, scratch)
            absent = set(touched) - present
            _write_placeholders(absent, scratch)
            changed = present.intersection(tree.files_of(commit))
            units: set[str] = set()
            for file in changed & graph.files:
                if file.endswith(_HEADERS):
                    units |= affected_units(graph, file, allowances.get(file))
            units = (units | changed) & commands.keys() - absent
            # Before the series' own evaluator, the tree has upstream's, which needs TensorFlow.
            if not has_development_mode(scratch):
                units.discard(EVALUATOR)
            view = Path(folder) / "view.json"
            _write_view(view, tree.directory, scratch, touched)
            logging.info("%d/%d %s: %d units", number, len(commits), name, len(units))

            def compile_unit(unit: str, view: Path = view) -> str:
                return _compile(commands[unit], view)

            ordered = sorted(units)
            compilations += len(ordered)
            results = zip(ordered, threads.map(compile_unit, ordered), strict=True)
            faults += [f"{name}: {unit}: {error}" for unit, error in results if error]
            faults += [f"{name}: {fault}" for fault in _format(tree.changes(commit, 0), scratch)]
    if faults:
        raise PatchError(
            f"{len(faults)} faults in patches by themselves; mend each in its own commit of "
            f"{tree.directory} (git rebase -i):\n" + "\n".join(faults)
        )
    return f"{len(commits)} patches compile by themselves and are formatted ({compilations} units)"


def compile_commands(database: str, tree: Path) -> dict[str, list[str]]:
    """The commands that check the syntax of a tree's translation units, by path in the tree.

    Args:
      database: the compilation database, which `ninja -t compdb` prints. A unit that several sets
        of models compile is checked as for the first set.
      tree: the tree.
    """
    commands: dict[str, list[str]] = {}
    for entry in json.loads(database):
        file = Path(entry["file"])
        words = shlex.split(entry["command"])
        if not file.is_relative_to(tree) or "-c" not in words:
            continue
        for option in ("-o", "-MT", "-MF"):
            place = words.index(option)
            del words[place : place + 2]
        kept = [word for word in words if word not in ("-c", "-MD")]
        commands.setdefault(str(file.relative_to(tree)), [*kept, "-fsyntax-only"])
    return commands


def _compile(command: Sequence[str], view: Path) -> str:
    """The first error of a compilation, "" if there is none."""
    try:
        run_command([*command, "-ivfsoverlay", view], timeout_s=600)
    except CommandError as error:
        found = _ERROR.search(error.stderr)
        return found[0] if found else str(error)
    return ""


def _format(changes: str, scratch: Path) -> list[str]:
    """A message for each place that the patch changes and clang-format would write otherwise."""
    with tempfile.TemporaryFile() as stream:
        stream.write(changes.encode())
        stream.seek(0)
        try:
            run_command(_FORMATTER, cwd=scratch, stdin=stream, timeout_s=600)
        except CommandError as error:
            # The program fails if it would change anything, and prints the change as a diff.
            hunks = list(_HUNK.finditer(error.stderr))
            if not hunks:
                raise
            places = [f"{hunk[1]}:{int(hunk[2]) + hunk[3].count(chr(10))}" for hunk in hunks]
            return [f"{place}: clang-format writes it otherwise" for place in places]
    return []


def _write_placeholders(absent: Iterable[str], scratch: Path) -> None:
    for file in absent:
        (scratch / file).parent.mkdir(parents=True, exist_ok=True)
        (scratch / file).write_text(_ABSENT)


def _write_view(path: Path, tree: Path, scratch: Path, files: Iterable[str]) -> None:
    """Writes a virtual file system to `path` that replaces the tree's `files` by `scratch`'s."""
    roots = [
        {"name": str(tree / file), "type": "file", "external-contents": str(scratch / file)}
        for file in files
    ]
    # The compiler looks for included files beside a file's name in the tree.
    view = {"version": 0, "case-sensitive": "true", "use-external-names": "false", "roots": roots}
    write_text(path, json.dumps(view))
