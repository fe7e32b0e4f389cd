# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a patch of the compiler changes in builds by a profile: code, counts and times.

The programs of `harm` are built by the compiler before the patch and by the one with it. Both read
the profiles and counters that the former's builds gave.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from elftools.elf.constants import SH_FLAGS

from benchmarks.beside import beside, link_layouts, of_trial, timed_alike
from benchmarks.changes import mean_change, measured, percent_change
from benchmarks.programs.forty import Program, in_turn, read_table, requests, side_by_side
from benchmarks.results import Cell, Interval, Table
from compiler_opt_perf.binary.elf import open_elf
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.rounds import paired_change
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.runs import Contender, GivenRun, Timed, instructions
from compiler_opt_perf.trial.trial import Request, prepare_ways
from compiler_opt_perf.trial.ways import PGO, PLAIN, SPEED, Way

PROGRAMS = {program.name: program for program in read_table().program}
ROUNDS = 15
WAYS = (SPEED[1], *PGO)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program that was built in one way.

    Attributes:
      key: the program's name, and the way's.
      run: what is counted and timed.
      builds: plain, and the way's before the patch and with it.
    """

    key: tuple[str, str]
    run: GivenRun
    builds: tuple[Contender, ...]

    @property
    def differs(self) -> bool:
        """Whether the patch changes the code."""
        _, before, after = (_code(_program(one)) for one in self.builds)
        return before != after

    def text(self) -> float:
        """Change of machine code by the patch, in percent."""
        _, before, after = (text_bytes(_program(one)) for one in self.builds)
        return percent_change(after, before)


class Outcome(msgspec.Struct, frozen=True):
    """What the patch changes in a program, in percent; times with intervals.

    Attributes:
      text: of the machine code.
      instructions: of the executed ones; None if they were not counted.
      times: with the patch against without; that against plain; with the patch against plain.
        Empty if nothing was timed.
    """

    text: float
    instructions: float | None
    times: tuple[Interval, ...] = ()


#: By program and name of the way.
Outcomes = Mapping[tuple[str, str], Outcome]


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    earlier: Toolchain,
    *,
    ways: Sequence[Way] = WAYS,
    rounds: int = ROUNDS,
    prepare: bool = False,
    table: Mapping[str, Program] = PROGRAMS,
) -> list[Table]:
    """Builds programs; counts and times those whose code differs.

    Args:
      folder: as of `harm.study`; its builds by `earlier` are used.
      toolchain: the tools with the patch.
      earlier: the tools without it.
      rounds: timed runs of each build.
      prepare: everything but the times, which need an idle machine.
      table: the programs by name.
    """
    meter = find_meter("instructions", folder)
    with Pool() as pool:
        asked = requests(
            (table[name] for name in programs), folder, earlier, (PLAIN, *ways), rounds
        )
        tasks = {name: (name, *one, toolchain) for name, one in asked.items()}
        built = side_by_side(pool, _built, tasks, "building and profiling programs")
        cases = {
            ", ".join(case.key): case for own in built.values() for case in own if case.differs
        }
        counts = {label: (case, meter) for label, case in cases.items()}
        found = side_by_side(pool, _counted, counts, "counting instructions")
        counted = {label: cases[label] for label in found}
        link_layouts(pool, (case.builds for case in counted.values()), rounds)

    def time(case: Case) -> tuple[Interval, ...]:
        name, way = case.key
        note = folder / name / f"rounds-patch-{way}.json"
        return _times(timed_alike(case.builds, case.run, rounds, note))

    for label, times in in_turn(time, {} if prepare else counted, "timing programs").items():
        found[label] = msgspec.structs.replace(found[label], times=times)
    named = {cases[label].key: one for label, one in found.items()}
    return tables(named, len(built), ways) if built else []


def _built(task: tuple[str, Request, Path, Toolchain]) -> list[Case]:
    """Builds a program in all ways, by both compilers."""
    name, wanted, folder, toolchain = task
    prepared = prepare_ways(wanted, folder)
    cases = []
    for number, way in enumerate(wanted.ways[1:]):
        flags = way.flags(toolchain, {}, prepared.profile, prepared.counters)
        builds = (
            of_trial(prepared, PLAIN),
            of_trial(prepared, way),
            beside(prepared, wanted.project, f"new-{number:02}", f"{way.name}, patched", flags),
        )
        cases.append(Case((name, way.name), wanted.runs[0], builds))
    return cases


def _counted(task: tuple[Case, Meter]) -> Outcome:
    """What the patch changes in the code and its run."""
    case, meter = task
    before, after = (instructions(one.way, one.built, case.run, meter) for one in case.builds[1:])
    executed = percent_change(after, before) if before and after else None
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


def tables(found: Outcomes, programs: int, ways: Sequence[Way] = WAYS) -> list[Table]:
    """The means by way over all `programs`, and each program that the patch changes."""
    return [_sums(found, programs, ways), _all(found, ways)]


def _sums(found: Outcomes, programs: int, ways: Sequence[Way]) -> Table:
    rows: list[list[Cell]] = []
    for way in ways:
        own = [one for (_, name), one in found.items() if name == way.name]
        same = [0.0] * (programs - len(own))
        counts = [one.instructions for one in own if one.instructions is not None]
        times = [one.times[0] for one in own if one.times]
        rows.append(
            [
                way.name,
                len(own),
                mean_change([*(one.text for one in own), *same]),
                mean_change([*counts, *same]),
                mean_change([*(value for value, _, _ in times), *same]) if times else None,
                sum(high < 0 for _, _, high in times),
                sum(low > 0 for _, low, _ in times),
            ]
        )
    return Table.of(
        "sums",
        f"What the patch changes in {programs} programs: geometric means, in which those count "
        "whose code stays the same, and how many are faster and slower by an interval without "
        "zero.",
        {
            "build": "text",
            "other code": "integer",
            "text": "percent:+2",
            "instructions": "percent:+2",
            "time": "percent:+2",
            "faster": "integer",
            "slower": "integer",
        },
        rows,
    )


def _all(found: Outcomes, ways: Sequence[Way]) -> Table:
    order = [way.name for way in ways]
    rows: list[list[Cell]] = [
        [name, way, one.text, one.instructions, *(one.times or (None, None, None))]
        for (name, way), one in sorted(
            found.items(), key=lambda one: (one[0][0], order.index(one[0][1]))
        )
    ]
    return Table.of(
        "programs",
        "Builds whose code the patch changes. Text, executed instructions and time are those with "
        "the patch against without. The last two columns are times against plain `-O2`.",
        {
            "program": "text",
            "build": "text",
            "text": "percent:+2",
            "instructions": "percent:+2",
            "time": "percent:+1",
            "without, to plain": "percent:+1",
            "with, to plain": "percent:+1",
        },
        rows,
    )
