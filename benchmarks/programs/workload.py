# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program with one run of it: how it is built, run and counted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

from benchmarks.common import counted_run
from compiler_opt_perf.binary.elf import PROFILING_FLAGS
from compiler_opt_perf.corpus.program_table import Program
from compiler_opt_perf.corpus.programs import build_program, program_sources, source_checksums
from compiler_opt_perf.profile.callgrind_dump import Dump
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.llvm import stock_tool
from compiler_opt_perf.run.memo import memo


def without_times(printed: bytes) -> bytes:
    """What a run prints, without the times, rates and memory that SQLite and MiniSat print."""
    return re.sub(rb"\d+\.\d+ ?s\b|\d+ /sec|\d+\.\d+ MB", b"", printed)


@dataclass(frozen=True)
class Built:
    """A built program, the arguments of a run, and the commands that compile it.

    Attributes:
      binary: with debug info.
      arguments: of the run.
      units: by translation unit, clang's arguments without level, profile and output.
      directory: where the units are compiled.
      libraries: options of the link; none for parts of a program.
    """

    binary: Path
    arguments: list[str]
    units: Sequence[list[str]] = ()
    directory: Path = Path()
    libraries: Sequence[str] = ()


@dataclass(frozen=True)
class Workload:
    """A program's sources and one run of it.

    Attributes:
      program, tree: its sources.
      arguments: of the run.
      inputs: files that the run reads and that exist before the program is built.
      output: the file with the run's result; None if the result is printed.
      flags: compiler flags beside the program's own.
      shorter: arguments of a shorter run that does the same, to be recorded; None for none.
    """

    program: Program
    tree: Path
    arguments: tuple[str, ...]
    inputs: tuple[Path, ...] = ()
    output: Path | None = None
    flags: tuple[str, ...] = ()
    shorter: tuple[str, ...] | None = None

    def run_inputs(self) -> dict[str, Any]:
        """All that the run depends on besides the program."""
        return {"arguments": self.arguments, "files": list(map(sha256, self.inputs))}

    def to_record(self) -> "Workload":
        """The shorter run, or this one where there is none."""
        return self if self.shorter is None else replace(self, arguments=self.shorter)

    def counted(self, binary: Path, folder: Path) -> Dump:
        """Counts a run of a binary, as `counted_run`. Raises CommandError."""
        # LMDB would add to a database that is there.
        if self.output:
            self.output.unlink(missing_ok=True)
        return counted_run(binary, self.arguments, folder)

    def build(
        self, folder: Path, options: Sequence[str] = ("-O2", *PROFILING_FLAGS.split())
    ) -> Built:
        """Builds the program in `folder` with `options` of clang, once.

        Raises:
          CommandError: the compiler's own error.
        """
        options = (*options, *self.flags)
        clang, binary = stock_tool("clang"), folder / self.program.name
        inputs = {
            **source_checksums(self.program, self.tree),
            "options": options,
            "clang": sha256(clang.resolve()),
        }

        def compiled() -> None:
            build_program(self.program, self.tree, folder, clang=clang, flags=options)

        files = [binary, *([folder / "input"] if self.program.workload_inputs else [])]
        memo(folder / "built.json", inputs, NoneType, compiled, files)
        shared = [*self.flags, *self.program.flags]
        shared += [f"-I{(folder / 'generated').resolve()}"] if self.program.generated else []
        units = [
            [*shared, "-w", "-c", str(source)]
            for source in program_sources(self.program, self.tree)
        ]
        arguments = list(self.arguments)
        return Built(binary, arguments, units, self.tree, self.program.libraries)
