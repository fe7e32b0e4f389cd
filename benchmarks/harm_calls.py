# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What AutoFDO gains by counting calls that were inlined in the profiled program.

Upstream's loader of profiles takes such a call, where it inlines it no more, as never executed. The
programs of `harm` are built by AutoFDO with these counts and without: code, counts and times.
"""

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from elftools.elf.constants import SH_FLAGS

from benchmarks.changes import mean_change, measured
from benchmarks.common import BenchmarkError
from benchmarks.programs.forty import Program, in_turn, read_table, requests, side_by_side
from benchmarks.results import Cell, Interval, Table
from compiler_opt_perf.binary.elf import open_elf
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.rounds import paired_change
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.build import WayFolder
from compiler_opt_perf.trial.runs import Contender, GivenRun, Timed, instructions, timed
from compiler_opt_perf.trial.trial import Request, prepare_ways
from compiler_opt_perf.trial.ways import SPEED

PROGRAMS = {program.name: program for program in read_table().program}
ROUNDS = 15
_PLAIN, _AUTOFDO = WAYS = SPEED[:2]
_UNCOUNTED = "uncounted"
_OFF = "-sample-profile-count-uninlined-calls=false"


@dataclasses.dataclass(frozen=True)
class Case:
    """A program that was built.

    Attributes:
      run: what is counted and timed.
      builds: plain, AutoFDO without the counts, and AutoFDO.
      rounds: how many the layouts are for.
    """

    run: GivenRun
    builds: tuple[Contender, ...]
    rounds: int

    @property
    def differs(self) -> bool:
        """Whether the counts change the code."""
        _, before, after = (_code(_program(one)) for one in self.builds)
        return before != after

    def text(self) -> float:
        """Change of machine code by the counts, in percent."""
        _, before, after = (text_bytes(_program(one)) for one in self.builds)
        return _percent(after, before)

    def linked(self) -> tuple[Contender, ...]:
        """The builds in as many layouts as there are rounds."""
        numbers = range(self.rounds)
        return tuple(
            dataclasses.replace(one, layouts=one.way.layouts(one.built, one.name, numbers))
            for one in self.builds
        )

    def timed(self, path: Path) -> Timed:
        """Times the builds in rounds.

        Raises:
          TrialError: a run failed.
          BenchmarkError: a build prints something else than plain, which always prints the same.
        """
        processor = max(os.sched_getaffinity(0))
        found = timed(self.linked(), self.run, self.rounds, processor, path)
        plain, *others = found.outputs
        if len(plain) == 1 and any(one != plain for one in others):
            raise BenchmarkError(f"{self.run}: prints something else than plain")
        return found


class Outcome(msgspec.Struct, frozen=True):
    """What the counts change in a program, in percent; times with intervals.

    Attributes:
      text: of the machine code.
      instructions: of the executed ones; None if they were not counted.
      times: AutoFDO against itself without the counts; that against plain; AutoFDO against plain.
        Empty if nothing was timed.
    """

    text: float
    instructions: float | None
    times: tuple[Interval, ...] = ()


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    rounds: int = ROUNDS,
    prepare: bool = False,
    table: Mapping[str, Program] = PROGRAMS,
) -> list[Table]:
    """Builds programs; counts and times those whose code differs.

    Args:
      folder: as of `harm.study`, whose builds are used.
      rounds: timed runs of each build.
      prepare: everything but the times, which need an idle machine.
      table: the programs by name.
    """
    own = [table[name] for name in programs]
    meter = find_meter("instructions", folder)
    with Pool() as pool:
        asked = requests(own, folder, toolchain, WAYS, rounds)
        built = side_by_side(pool, _built, asked, "building and profiling programs")
        tasks = {name: (case, meter) for name, case in built.items() if case.differs}
        found = side_by_side(pool, _counted, tasks, "counting instructions")
        pool.map(Case.linked, [built[name] for name in found], label="linking layouts")

    def time(name: str) -> tuple[Interval, ...]:
        return _times(built[name].timed(folder / name / "rounds-calls.json"))

    timed = {} if prepare else {name: name for name in found}
    for name, times in in_turn(time, timed, "timing programs").items():
        found[name] = msgspec.structs.replace(found[name], times=times)
    return tables(found, tuple(built), table)


def _built(asked: tuple[Request, Path]) -> Case:
    """Builds a program in all ways."""
    wanted, folder = asked
    prepared = prepare_ways(wanted, folder)
    plain, built = prepared.builds[_PLAIN]
    flags = _AUTOFDO.flags(wanted.toolchain, {}, prepared.profile, None)
    flags = dataclasses.replace(flags, options=(*flags.options, _OFF))
    # As long as the path of the other builds, which may be in the program.
    uncounted = WayFolder(plain.path.parents[1] / _UNCOUNTED)
    clang = sha256(wanted.toolchain.clang.resolve())
    before = uncounted.build(wanted.project, _UNCOUNTED, flags, clang, built.program)
    builds = (
        (_PLAIN.name, plain, built),
        (_UNCOUNTED, uncounted, before),
        (_AUTOFDO.name, *prepared.builds[_AUTOFDO]),
    )
    return Case(wanted.runs[0], tuple(Contender(*one, ()) for one in builds), wanted.rounds)


def _counted(task: tuple[Case, Meter]) -> Outcome:
    """What the counts change in the code and its run."""
    case, meter = task
    before, after = (instructions(one.way, one.built, case.run, meter) for one in case.builds[1:])
    executed = _percent(after, before) if before and after else None
    return Outcome(case.text(), executed)


def _times(found: Timed) -> tuple[Interval, ...]:
    """The changes of time, in the order of `Outcome.times`."""
    plain, before, after = ([row[way] for row in found.seconds] for way in range(3))
    pairs = ((after, before), (before, plain), (after, plain))
    return tuple(measured(paired_change(*pair)) for pair in pairs)


def _program(build: Contender) -> Path:
    return build.way.program(build.built.program)


def _code(program: Path) -> str:
    """A digest of the program's machine code."""
    digest = hashlib.sha256()
    with open_elf(program) as file:
        for section in file.iter_sections():
            if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR:
                digest.update(section.data())
    return digest.hexdigest()


def _percent(value: float, base: float) -> float:
    return round(100 * (value / base - 1), 4)


def tables(
    found: Mapping[str, Outcome], programs: Sequence[str], table: Mapping[str, Program]
) -> list[Table]:
    """The means over `programs`, and those that the counts change."""
    return [_sums(found, programs, table), _all(found, table)]


def _sums(
    found: Mapping[str, Outcome], programs: Sequence[str], table: Mapping[str, Program]
) -> Table:
    rows: list[list[Cell]] = []
    for half in sorted({table[name].set for name in programs}):
        names = [name for name in programs if table[name].set == half]
        own = [found[name] for name in names if name in found]
        same = [0.0] * (len(names) - len(own))
        text = mean_change([*(one.text for one in own), *same])
        counts = [one.instructions for one in own if one.instructions is not None]
        times = [one.times[0] for one in own if one.times]
        time = mean_change([*(value for value, _, _ in times), *same]) if times else None
        faster = sum(high < 0 for _, _, high in times) if times else None
        slower = sum(low > 0 for _, low, _ in times) if times else None
        executed = mean_change([*counts, *same])
        rows.append([half, len(names), len(own), text, executed, time, faster, slower])
    return Table.of(
        "sums",
        "What counting calls that were inlined in the profiled program changes in AutoFDO. "
        "Geometric means over all programs, also those whose code stays the same, and how many "
        "are faster and slower by an interval without zero.",
        {
            "set": "text",
            "programs": "integer",
            "other code": "integer",
            "text": "percent:+2",
            "instructions": "percent:+2",
            "time": "percent:+2",
            "faster": "integer",
            "slower": "integer",
        },
        rows,
    )


def _all(found: Mapping[str, Outcome], table: Mapping[str, Program]) -> Table:
    rows: list[list[Cell]] = [
        [name, table[name].set, one.text, one.instructions, *(one.times or (None, None, None))]
        for name, one in sorted(found.items())
    ]
    return Table.of(
        "programs",
        f"The {len(found)} programs whose code the counts change. Text, executed instructions and "
        "time are those of AutoFDO against AutoFDO without the counts. The last two columns are "
        "times against plain `-O2`, without the counts and with them.",
        {
            "program": "text",
            "set": "text",
            "text": "percent:+2",
            "instructions": "percent:+2",
            "time": "percent:+1",
            "without, to plain": "percent:+1",
            "with, to plain": "percent:+1",
        },
        rows,
    )
