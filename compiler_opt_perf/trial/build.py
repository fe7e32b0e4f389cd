# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds a copy of a user's tree in one way; links its program in several layouts."""

import contextlib
import hashlib
import math
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from absl import logging

from compiler_opt_perf.binary.elf import BinaryError
from compiler_opt_perf.policy.compiler_flags import CompilerFlags
from compiler_opt_perf.run.command import CommandError, run_command, start_command
from compiler_opt_perf.run.files import (
    atomic_write,
    files_of,
    make_executable,
    read_input,
    sha256,
    write_text,
)
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.rounds import layout_flags
from compiler_opt_perf.trial.compiler import CompilerScripts
from compiler_opt_perf.trial.errors import TrialError

_LINES_SHOWN = 20
# A way's links for layouts end so long after the first one, which fills ThinLTO's cache; rounds
# then take turns with fewer.
_LAYOUTS_S = 60.0


@dataclass(frozen=True)
class Project:
    """What the user builds.

    Attributes:
      source: the tree, which is only read.
      command: of the shell; it builds the tree in its present folder.
      level: of optimisation, such as -O2.
    """

    source: Path
    command: str
    level: str

    @cached_property
    def digest(self) -> str:
        """A digest of names, sizes and times of all files of the tree. Raises OSError."""
        digest = hashlib.sha256()
        for folder, folders, files in os.walk(self.source):
            folders.sort()
            for name in sorted([*files, *folders]):
                path = os.path.join(folder, name)
                status = os.lstat(path)
                size = 0 if name in folders else status.st_size
                changed = 0 if name in folders else status.st_mtime_ns
                digest.update(repr((path, status.st_mode, size, changed)).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Built:
    """A finished build.

    Attributes:
      program: the program's path in the tree.
      seconds: wall time of the build.
    """

    program: str
    seconds: float


class WayFolder:
    """One way's build.

    Attributes:
      path: the folder of all files of it.
      tree: the copy of the user's tree, which is built, and in which the program runs.
    """

    def __init__(self, path: Path):
        self.path = path
        # Trees have paths of equal length, which may be in the program.
        self.tree = path / "tree"
        self.configuration = path / "way.cfg"
        self._compiler = CompilerScripts(path)
        self._programs = path / "programs"
        self._log = path / "build.log"

    def build(
        self, project: Project, name: str, flags: CompilerFlags, clang: str, program: str
    ) -> Built:
        """Builds the tree, unless it was built before from the same.

        Args:
          name: of the way, for messages.
          clang: digest of the compiler.
          program: the program's path in the tree, or a command line that names it.

        Raises:
          TrialError: the build failed, or made no program that can be tried.
          OSError: the tree cannot be copied.
        """
        inputs = {
            "tree": project.digest,
            "command": project.command,
            "level": project.level,
            "flags": flags.configuration(),
            "files": _digests(flags),
            "clang": clang,
        }

        def make() -> float:
            start = time.monotonic()
            for old in self.path.glob("*"):
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            self.path.mkdir(parents=True, exist_ok=True)
            logging.info("%s: copying %s and building", name, project.source)
            run_command(["cp", "-a", "--reflink=auto", project.source, self.tree])
            write_text(self.configuration, flags.configuration())
            self._compiler.write(flags.toolchain.clang, self.configuration, project.level)
            self._run(project.command, name)
            seconds = time.monotonic() - start
            logging.info("%s: built in %.1f s", name, seconds)
            return round(seconds, 1)

        seconds = memo(self.path / "built.json", inputs, float, make)
        for kept in files_of(self._programs) if self._programs.is_dir() else ():
            # A killed process may have left a script or another layout in its place.
            self._place(kept, str(kept.relative_to(self._programs)))
        found = self._found(program)
        self._require_ours(found)
        copy = self.program(found)
        if not copy.exists():
            with atomic_write(copy) as new:
                shutil.copy(self.tree / found, new)
            make_executable(copy)
        return Built(found, seconds)

    def program(self, name: str) -> Path:
        """The program as it was built; that in the tree may be another layout of it."""
        return self._programs / name

    def layouts(self, built: Built, name: str, numbers: Sequence[int]) -> list[Path]:
        """Links the program once for each layout, until that takes too long.

        A program whose link cannot be done again, as its inputs are gone, has one layout.

        Args:
          name: of the way, for messages.
          numbers: of the layouts.

        Returns:
          At least one program.
        """
        program = self.program(built.program)
        folder = self.path / f"layouts-{numbers[0]}"
        targets = [folder / str(number) for number in numbers]
        inputs = {"program": sha256(program), "layouts": [layout_flags(one) for one in numbers]}

        def make() -> int:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            own, link = self.link_words(built)
            cache = f"-Wl,--thinlto-cache-dir={self.path / 'thinlto-cache'}"
            end = math.inf
            for done, (number, target) in enumerate(zip(numbers, targets, strict=True)):
                if time.monotonic() > end:
                    return done
                words = [*link, *layout_flags(number), cache, "-o", str(target)]
                try:
                    run_command(words, cwd=own)
                except CommandError as error:
                    logging.warning(
                        "%s: %s cannot be linked again, so that its time is that of one layout: %s",
                        name,
                        built.program,
                        error.stderr.strip() or error.reason,
                    )
                    shutil.copy(program, targets[0])
                    return 1
                if not done:
                    end = time.monotonic() + _LAYOUTS_S
            return len(targets)

        made = memo(self.path / f"layouts-{numbers[0]}.json", inputs, int, make)
        return targets[:made]

    def link_words(self, built: Built) -> tuple[Path, list[str]]:
        """The folder of the program's link, and the command that does it again.

        Flags and another output may follow.
        """
        link = self._compiler.link_of(self.program(built.program))
        assert link is not None
        return link.folder, self._compiler.relink(link)

    def place(self, built: Built, file: Path) -> None:
        """Puts a program, such as a layout of it, into its place in the tree. Raises OSError."""
        self._place(file, built.program)

    @contextlib.contextmanager
    def script_in_place(self, built: Built, script: str) -> Iterator[None]:
        """Puts a script into the program's place, with the program beside it as `real(built)`."""
        real, place = self.real(built), self.tree / built.program
        real.unlink(missing_ok=True)
        os.link(self.program(built.program), real)
        beside = place.with_name(f".{place.name}.new")
        beside.unlink(missing_ok=True)
        beside.write_text(script)
        beside.chmod(0o755)
        os.replace(beside, place)
        try:
            yield
        finally:
            self.place(built, self.program(built.program))
            real.unlink()

    def real(self, built: Built) -> Path:
        """Where the program is while a script is in its place."""
        place = self.tree / built.program
        return place.with_name(f".{place.name}.real")

    def _place(self, file: Path, name: str) -> None:
        place = self.tree / name
        beside = place.with_name(f".{place.name}.new")
        beside.unlink(missing_ok=True)
        os.link(file, beside)
        os.replace(beside, place)
        # Where both were one file already, it stays beside, and writing to it would change both.
        beside.unlink(missing_ok=True)

    def _run(self, command: str, name: str) -> None:
        """Runs the build's command in the tree."""
        with (
            self._log.open("wb") as log,
            start_command(
                ["sh", "-c", command],
                cwd=self.tree,
                env=self._compiler.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            ) as running,
        ):
            done = running.wait(
                report=lambda seconds: logging.info("%s: building for %.0f s", name, seconds)
            )
        if done.status:
            lines = read_input(self._log).decode(errors="replace").splitlines()[-_LINES_SHOWN:]
            shown = "".join(f"\n  {line}" for line in lines)
            raise TrialError(
                f"--build={shlex.quote(command)}: exit status {done.status} in {self.tree} "
                f"({name}); the end of {self._log}:{shown}"
            )

    def _found(self, program: str) -> str:
        """The program's path in the tree; `program` is the path, or a command line."""
        try:
            words = shlex.split(program)
        except ValueError:
            words = program.split()
        for word in words:
            path = self.tree / word
            if path.is_file() and os.access(path, os.X_OK) and _is_elf(path):
                try:
                    return str(path.resolve().relative_to(self.tree.resolve()))
                except ValueError:
                    continue
        hint = "name the program: --binary=PATH, in the tree"
        for word in words:
            real = (self.tree / word).parent / ".libs" / Path(word).name
            if real.is_file():
                hint = f"{word} is libtool's script: add --binary={real.relative_to(self.tree)}"
        raise TrialError(f"{program}: has no program that the build made in {self.tree}; {hint}")

    def _require_ours(self, found: str) -> None:
        """Raises TrialError unless our compiler linked the program, with debug info."""
        program = self.tree / found
        advice = (
            "begin --build with what removes earlier builds (make clean), and let the build take "
            "its compiler from CC and CXX or from PATH"
        )
        try:
            link = self._compiler.link_of(program)
        except BinaryError:
            link = None
        if link is None:
            raise TrialError(
                f"{program}: was not linked by the compiler that this command gave to the build; "
                f"{advice}"
            )


def _is_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _digests(flags: CompilerFlags) -> list[str]:
    """Digests of the files that flags name: profiles, and models."""
    found = []
    for word in (*flags.options, *flags.profile_words):
        _, _, name = word.partition("=")
        path = Path(name)
        if name.startswith("/") and path.is_dir():
            found += [sha256(part) for part in sorted(path.iterdir()) if part.is_file()]
        elif name.startswith("/") and path.is_file():
            found.append(sha256(path))
    return found
