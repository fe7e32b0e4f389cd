# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds of programs of Debian beside plain `-O2`: text, file, and time on an unprofiled input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.beside import link_layouts, timed_alike
from benchmarks.changes import mean_and_resolved, mean_change, measured, percent_change
from benchmarks.programs.forty import SEED, Program, in_turn, requests, side_by_side
from benchmarks.results import Cell, Interval, Table
from compiler_opt_perf.cost.size import stripped_bytes, text_bytes
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.rounds import paired_change
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.runs import Contender, GivenRun
from compiler_opt_perf.trial.trial import Request
from compiler_opt_perf.trial.ways import Way

Figure = TypeVar("Figure")

ROUNDS = 15
#: Seed of the inputs that are timed.
OTHER_SEED = SEED + 1


class Outcome(msgspec.Struct, frozen=True):
    """What builds of a program change, in percent, in the order of a comparison's rows.

    Attributes:
      text: of the machine code's bytes.
      file: of the stripped file's bytes.
      times: of processor time; empty if nothing was timed.
    """

    text: list[float]
    file: list[float]
    times: list[Interval] = []


@dataclass(frozen=True)
class Comparison:
    """What is built and compared.

    Attributes:
      programs: by name.
      note: name of the files that keep the rounds.
      ways: of the trial of a program.
      build: builds a program in a worker: plain first, then the others.
      rows: of the tables: by name, the numbers of a build and of the one it is compared with.
      not_timed: programs of which another input is too long.
    """

    programs: Mapping[str, Program]
    note: str
    ways: Sequence[Way]
    build: Callable[[tuple[Request, Path]], list[Contender]]
    rows: Mapping[str, tuple[int, int]]
    not_timed: frozenset[str] = frozenset()

    def study(
        self,
        programs: Sequence[str],
        folder: Path,
        toolchain: Toolchain,
        *,
        rounds: int = ROUNDS,
        prepare: bool = False,
        table: Mapping[str, Program] | None = None,
    ) -> list[Table]:
        """Builds programs in all ways, and times them.

        Args:
          folder, toolchain, rounds, prepare: as of `harm.study`.
          table: programs by name; None for the comparison's own.
        """
        named = self.programs if table is None else table
        with Pool() as pool:
            asked = requests(
                (named[name] for name in programs), folder, toolchain, self.ways, rounds
            )
            built = side_by_side(pool, self.build, asked, "building and profiling programs")
            link_layouts(pool, built.values(), rounds)
            found = {name: self._sizes(builds) for name, builds in built.items()}

        def time(name: str) -> list[Interval]:
            run = named[name].given_run(folder / name, OTHER_SEED)
            return self._times(built[name], run, rounds, folder / name / f"rounds-{self.note}.json")

        names = {} if prepare else {name: name for name in found if name not in self.not_timed}
        for name, times in in_turn(time, names, "timing programs").items():
            found[name] = msgspec.structs.replace(found[name], times=times)
        return [self._sums(found), self._all(found)] if found else []

    def _sizes(self, builds: Sequence[Contender]) -> Outcome:
        text, file = (
            [measure(one.way.program(one.built.program)) for one in builds]
            for measure in (text_bytes, stripped_bytes)
        )
        return Outcome(
            [percent_change(*pair) for pair in self._compared(text)],
            [percent_change(*pair) for pair in self._compared(file)],
        )

    def _times(
        self, builds: Sequence[Contender], run: GivenRun, rounds: int, path: Path
    ) -> list[Interval]:
        found = timed_alike(builds, run, rounds, path)
        seconds = list(zip(*found.seconds, strict=True))
        return [measured(paired_change(*pair)) for pair in self._compared(seconds)]

    def _compared(self, figures: Sequence[Figure]) -> list[tuple[Figure, Figure]]:
        """The pairs of the rows, by the builds' figures."""
        return [(figures[one], figures[base]) for one, base in self.rows.values()]

    def _sums(self, found: Mapping[str, Outcome]) -> Table:
        rows: list[list[Cell]] = []
        timed = sum(bool(one.times) for one in found.values())
        for number, row in enumerate(self.rows):
            times = [one.times[number] for one in found.values() if one.times]
            rows.append(
                [
                    row,
                    mean_change([one.text[number] for one in found.values()]),
                    mean_change([one.file[number] for one in found.values()]),
                    *(mean_and_resolved(times) if times else (None, None, None)),
                ]
            )
        return Table.of(
            "sums",
            f"Geometric means of {len(found)} programs, against plain `-O2` where no other build "
            "is named, and how many programs are faster and slower by an interval without zero. "
            f"Times are of {timed} programs, on inputs that were not profiled.",
            {
                "build": "text",
                "text": "percent:+1",
                "file": "percent:+1",
                "time": "percent:+1",
                "faster": "integer",
                "slower": "integer",
            },
            rows,
        )

    def _all(self, found: Mapping[str, Outcome]) -> Table:
        rows: list[list[Cell]] = [
            [name, row, one.text[number], one.times[number] if one.times else None]
            for name, one in sorted(found.items())
            for number, row in enumerate(self.rows)
        ]
        return Table.of(
            "programs",
            "Change of machine code, and of processor time on an input that was not profiled; "
            "against plain `-O2` where no other build is named.",
            {"program": "text", "build": "text", "text": "percent:+1", "time": "percent:+1"},
            rows,
        )
