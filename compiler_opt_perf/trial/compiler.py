# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compilers for a user's build system: scripts that add flags, and note how programs are linked.

They come first on PATH under the usual names of compilers, so that build systems that ignore CC or
CFLAGS use them, too. Our flags follow the build system's own: of two levels the last one counts.
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compiler_opt_perf.binary.elf import BinaryError, build_id
from compiler_opt_perf.run.files import make_executable, read_input
from compiler_opt_perf.run.llvm import stock_tool

_C = re.compile(r"(?:(?:x86_64-linux-gnu-)?gcc|clang)(?:-\d+)?|cc|c89|c99")
_CXX = re.compile(r"(?:(?:x86_64-linux-gnu-)?g\+\+|clang\+\+)(?:-\d+)?|c\+\+")
# Build systems look for these, whether they are installed or not.
_USUAL = ("cc", "gcc", "clang", "c++", "g++", "clang++")
# They must read the compiler's bitcode, which another LLVM's or binutils' do not.
_ARCHIVERS = ("ar", "nm", "ranlib")
# Section by section, links can put functions into other orders.
_EVERY = ("-ffunction-sections", "-fuse-ld=lld", "-Wl,--build-id")
_SCRIPT = """\
#!/bin/bash
# Written by cop try. The flags at the end take the place of the build system's own.
links=yes
lto=
for word; do
  case $word in
    -c | -S | -E | -M | -MM | -r | -shared | -fsyntax-only | -v | -\\#\\#\\#) links= ;;
    --version | --help | -dump* | -print-* | --print-*) links= ;;
    # configure looks into the objects of its tests: which order have the bytes of a number?
    conftest.*) lto=-fno-lto ;;
  esac
done
[[ $links ]] && printf '%s\\0' "$PWD" "${{0##*/}}" "$@" > {links}/"$EPOCHREALTIME-$$"
exec {clang} --config={configuration} "$@" \\
  --start-no-unused-arguments {flags} $lto --end-no-unused-arguments
"""


@dataclass(frozen=True)
class Link:
    """A link of a program that a build did.

    Attributes:
      folder: where it ran.
      argv: the script in the place of the compiler, and its arguments.
    """

    folder: Path
    argv: tuple[str, ...]

    @property
    def output(self) -> Path:
        """The program that it made."""
        name = "a.out"
        for word, following in zip(self.argv, [*self.argv[1:], ""], strict=True):
            if word == "-o":
                name = following
            elif word.startswith("-o"):
                name = word.removeprefix("-o")
        return self.folder / name


class CompilerScripts:
    """The scripts in `folder`/bin, and the links that they noted in `folder`/links."""

    def __init__(self, folder: Path):
        self._bin = folder / "bin"
        self._links = folder / "links"

    def write(self, clang: Path, configuration: Path, level: str) -> None:
        """Writes the scripts, and forgets noted links.

        Args:
          clang: the compiler; clang++ is beside it.
          configuration: a configuration file of clang's.
          level: of optimisation, such as -O2.

        Raises:
          OSError: the folder cannot be written.
          MissingToolError: the distribution's LLVM is not installed.
        """
        for made in (self._bin, self._links):
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(parents=True)
        found = {name for name in _on_path() if _C.fullmatch(name) or _CXX.fullmatch(name)}
        for name in sorted(found.union(_USUAL)):
            driver = clang.with_name("clang++") if _CXX.fullmatch(name) else clang
            text = _SCRIPT.format(
                links=shlex.quote(str(self._links)),
                clang=shlex.quote(str(driver)),
                configuration=shlex.quote(str(configuration)),
                flags=shlex.join([level, *_EVERY]),
            )
            (self._bin / name).write_text(text)
            make_executable(self._bin / name)
        for tool in _ARCHIVERS:
            for name in (tool, f"llvm-{tool}"):
                (self._bin / name).symlink_to(stock_tool(f"llvm-{tool}"))

    def environment(self) -> dict[str, str]:
        """The variables by which a build system finds the scripts."""
        return {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            # By name: a path with a blank would be two words in a Makefile.
            "CC": "cc",
            "CXX": "c++",
            **{tool.upper(): f"llvm-{tool}" for tool in _ARCHIVERS},
            # Its cache would not see our flags.
            "CCACHE_DISABLE": "1",
        }

    def link_of(self, program: Path) -> Link | None:
        """The link that made a program, or the one that it is a copy of; None if none did.

        Raises:
          BinaryError: it is no ELF file, or has no build-id.
        """
        identity = build_id(program)
        for link in self._noted():
            try:
                if build_id(link.output) == identity:
                    return link
            except BinaryError:
                # It was removed since, or is no program.
                continue
        return None

    def relink(self, link: Link) -> list[str]:
        """The command that does a link again; flags and another output may follow."""
        return [str(self._bin / link.argv[0]), *link.argv[1:]]

    def _noted(self) -> Iterator[Link]:
        for path in sorted(self._links.iterdir(), reverse=True):
            folder, *argv = read_input(path).decode(errors="surrogateescape").split("\0")[:-1]
            yield Link(Path(folder), tuple(argv))


def _on_path() -> Iterator[str]:
    """The names of the programs on PATH."""
    for folder in os.environ["PATH"].split(":"):
        if os.path.isdir(folder):
            yield from os.listdir(folder)
