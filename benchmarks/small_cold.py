# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small cold code beside -Os and -Oz: text and time of forty programs, on inputs of other seeds.

What a profile knows cold is compiled for size. Another input may need code that did not run when
the profile was made, and pays for it. The levels for size make all code small, without a profile.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.beside import beside, link_layouts, of_trial, timed_alike
from benchmarks.changes import mean_and_resolved, mean_change, measured, percent_change
from benchmarks.programs.forty import SEED, Program, in_turn, read_table, requests, side_by_side
from benchmarks.results import Cell, Interval, Table
from compiler_opt_perf.cost.size import stripped_bytes, text_bytes
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.rounds import paired_change
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.runs import Contender, GivenRun
from compiler_opt_perf.trial.trial import Request, prepare_ways
from compiler_opt_perf.trial.ways import PLAIN, SMALL_COLD, SPEED

Figure = TypeVar("Figure")

PROGRAMS = {program.name: program for program in read_table().program}
ROUNDS = 15
#: Seed of the inputs that are timed.
OTHER_SEED = SEED + 1
# Formulas of other seeds are solved in a minute, not in half a second.
_NOT_TIMED = {"cadical"}
LEVELS = ("-Os", "-Oz")
_WAYS = (PLAIN, SPEED[1], SMALL_COLD[SPEED[1]])
_BUILDS = (*LEVELS, *(way.name for way in _WAYS[1:]))
#: In the order of tables: builds against plain, and the last one against the same without small
#: cold code.
ROWS = (*_BUILDS, f"{_BUILDS[-1]}, to {_BUILDS[-2]}")


class Outcome(msgspec.Struct, frozen=True):
    """What builds of a program change, in percent, in the order of `ROWS`.

    Attributes:
      text: of the machine code's bytes.
      file: of the stripped file's bytes.
      times: of processor time; empty if nothing was timed.
    """

    text: list[float]
    file: list[float]
    times: list[Interval] = []


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    rounds: int = ROUNDS,
    prepare: bool = False,
    table: Mapping[str, Program] = PROGRAMS,
) -> list[Table]:
    """Builds programs in all ways, and times them; arguments are those of `harm.study`."""
    own = [table[name] for name in programs]
    with Pool() as pool:
        asked = requests(own, folder, toolchain, _WAYS, rounds)
        built = side_by_side(pool, _built, asked, "building and profiling programs")
        link_layouts(pool, built.values(), rounds)
        found = {name: _sizes(builds) for name, builds in built.items()}

    def time(name: str) -> list[Interval]:
        run = table[name].given_run(folder / name, OTHER_SEED)
        return _times(built[name], run, rounds, folder / name / "rounds-small-cold.json")

    names = {} if prepare else {name: name for name in found if name not in _NOT_TIMED}
    for name, times in in_turn(time, names, "timing programs").items():
        found[name] = msgspec.structs.replace(found[name], times=times)
    return [_sums(found), _all(found)] if found else []


def _built(task: tuple[Request, Path]) -> list[Contender]:
    """Plain, and the builds in the order of tables."""
    wanted, folder = task
    prepared = prepare_ways(wanted, folder)
    plain, *others = (of_trial(prepared, way) for way in _WAYS)
    flags = PLAIN.flags(wanted.toolchain, {}, None, None)
    levels = [
        beside(
            prepared,
            dataclasses.replace(wanted.project, level=level),
            f"lev{level}",
            level,
            flags,
        )
        for level in LEVELS
    ]
    return [plain, *levels, *others]


def _sizes(builds: Sequence[Contender]) -> Outcome:
    text, file = (
        [measure(one.way.program(one.built.program)) for one in builds]
        for measure in (text_bytes, stripped_bytes)
    )
    return Outcome(
        [percent_change(*pair) for pair in _compared(text)],
        [percent_change(*pair) for pair in _compared(file)],
    )


def _times(builds: Sequence[Contender], run: GivenRun, rounds: int, path: Path) -> list[Interval]:
    found = timed_alike(builds, run, rounds, path)
    seconds = list(zip(*found.seconds, strict=True))
    return [measured(paired_change(*pair)) for pair in _compared(seconds)]


def _compared(figures: Sequence[Figure]) -> list[tuple[Figure, Figure]]:
    """The pairs of `ROWS`, by figures of plain and the builds."""
    plain, *others = figures
    return [*((one, plain) for one in others), (others[-1], others[-2])]


def _sums(found: Mapping[str, Outcome]) -> Table:
    rows: list[list[Cell]] = []
    timed = sum(bool(one.times) for one in found.values())
    for number, row in enumerate(ROWS):
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
        f"Geometric means of {len(found)} programs against plain `-O2`, and how many programs are "
        f"faster and slower by an interval without zero. Times are of {timed} programs, on inputs "
        "that were not profiled.",
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


def _all(found: Mapping[str, Outcome]) -> Table:
    rows: list[list[Cell]] = [
        [name, *one.text, *(one.times or (None,) * len(ROWS))]
        for name, one in sorted(found.items())
    ]
    return Table.of(
        "programs",
        "Change against plain `-O2`: machine code, and processor time on an input that was not "
        "profiled.",
        {
            "program": "text",
            **{f"text, {row}": "percent:+1" for row in ROWS},
            **{f"time, {row}": "percent:+1" for row in ROWS},
        },
        rows,
    )
