# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constants of the compiler beside a profile: what each setting changes, by the clock.

A learned policy competes with the best constant, so the constants are swept first. If none helps
any program much, not even the best one of each program, decisions of that kind have little to give.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.beside import beside, link_layouts, of_trial, timed_alike
from benchmarks.changes import mean_change, measured, percent_change
from benchmarks.programs.forty import Program, in_turn, read_table, requests, side_by_side
from benchmarks.results import Cell, Interval, Table
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.rounds import paired_change
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.runs import Contender
from compiler_opt_perf.trial.trial import Request, prepare_ways
from compiler_opt_perf.trial.ways import PGO, PLAIN, SPEED, Way

#: Those by which a policy may be chosen.
PROGRAMS = {one.name: one for one in read_table().program if one.set == "choose"}
ROUNDS = 15
WAYS = (SPEED[1], *PGO)


@dataclass(frozen=True)
class Setting:
    """Other constants than LLVM's.

    Attributes:
      name: in tables.
      options: of LLVM; clang takes them after -mllvm.
    """

    name: str
    options: tuple[str, ...]


SETTINGS = (
    Setting(
        "cold calls as others",
        ("-inline-cold-callsite-threshold=225", "-inlinecold-threshold=225"),
    ),
    Setting("hot calls 9000", ("-hot-callsite-threshold=9000",)),
    Setting("locally hot calls 1500", ("-locally-hot-callsite-threshold=1500",)),
    Setting("saved registers 65536", ("-regalloc-csr-first-time-cost=65536",)),
    Setting("rare loops peeled", ("-unroll-peel-rare-loop-ratio=0",)),
)


@dataclass(frozen=True)
class Case:
    """A program in all builds.

    Attributes:
      request: what is run, and how often.
      plain: the build without a profile.
      builds: by way, the build with LLVM's constants, and one for each setting.
    """

    request: Request
    plain: Contender
    builds: Mapping[str, Sequence[Contender]]

    def all(self) -> list[Contender]:
        """The builds in one row: plain, and the ways' in order."""
        return [self.plain, *(one for own in self.builds.values() for one in own)]

    def texts(self) -> dict[str, "Outcome"]:
        """By way, what the settings change in the code; nothing is timed."""
        return {way: Outcome(_texts(builds)) for way, builds in self.builds.items()}


class Outcome(msgspec.Struct, frozen=True):
    """What each setting changes in a program built in one way, in percent.

    Attributes:
      text: [S] of the machine code's bytes.
      plain: of time against plain `-O2`, with LLVM's constants; None if nothing was timed.
      times: [S] of time against LLVM's constants.
      best: of time by the setting that is best in half of the rounds, or LLVM's, in the other
        half; the mean of both halves.
    """

    text: list[float]
    plain: Interval | None = None
    times: list[Interval] = []
    best: float = 0.0


#: By program and name of the way.
Outcomes = Mapping[tuple[str, str], Outcome]


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    ways: Sequence[Way] = WAYS,
    rounds: int = ROUNDS,
    prepare: bool = False,
    table: Mapping[str, Program] = PROGRAMS,
) -> list[Table]:
    """Builds programs with all settings, and times them.

    Args:
      ways: with a profile.
      folder, toolchain, rounds, prepare, table: as of `harm.study`.
    """
    own = [table[name] for name in programs]
    with Pool() as pool:
        asked = requests(own, folder, toolchain, (PLAIN, *ways), rounds)
        built = side_by_side(pool, _built, asked, "building and profiling programs")
        link_layouts(pool, (case.all() for case in built.values()), rounds)
    found = {name: case.texts() for name, case in built.items()}

    def time(name: str) -> dict[str, Outcome]:
        return _timed(built[name], found[name], folder / name / "rounds-constants.json")

    names = {} if prepare else {name: name for name in built}
    found |= in_turn(time, names, "timing programs")
    named = {(name, way): one for name, own in found.items() for way, one in own.items()}
    return tables(named) if named else []


def _built(task: tuple[Request, Path]) -> Case:
    wanted, folder = task
    prepared = prepare_ways(wanted, folder)
    builds = {}
    for number, way in enumerate(wanted.ways[1:]):
        flags = way.flags(wanted.toolchain, wanted.models, prepared.profile, prepared.counters)
        builds[way.name] = [of_trial(prepared, way)]
        for of_setting, setting in enumerate(SETTINGS):
            options = (*flags.options, *setting.options)
            built = beside(
                prepared,
                wanted.project,
                f"set-{number}{of_setting}",
                f"{way.name}, {setting.name}",
                dataclasses.replace(flags, options=options),
            )
            builds[way.name].append(built)
    return Case(wanted, of_trial(prepared, PLAIN), builds)


def _texts(builds: Sequence[Contender]) -> list[float]:
    base, *others = (text_bytes(one.way.program(one.built.program)) for one in builds)
    return [percent_change(one, base) for one in others]


def _timed(case: Case, texts: Mapping[str, Outcome], note: Path) -> dict[str, Outcome]:
    """By way, the outcomes of a program, with times."""
    request = case.request
    found = timed_alike(case.all(), request.runs[0], request.rounds, note)
    plain, *columns = (list(column) for column in zip(*found.seconds, strict=True))
    outcomes = {}
    for way, builds in case.builds.items():
        own, columns = columns[: len(builds)], columns[len(builds) :]
        base, *others = own
        outcomes[way] = msgspec.structs.replace(
            texts[way],
            plain=measured(paired_change(base, plain)),
            times=[measured(paired_change(one, base)) for one in others],
            best=best_change(own),
        )
    return outcomes


def best_change(seconds: Sequence[Sequence[float]]) -> float:
    """What the best setting of a program gives, in percent, without the luck of choosing it.

    The setting is chosen by the medians of half of the rounds, and judged by the other half; and
    the other way round.

    Args:
      seconds: [1 + S][R] times by setting and round; the first row has LLVM's constants.
    """
    ratios = np.array(seconds) / np.array(seconds[0])
    changes = []
    for start in (0, 1):
        chosen = np.median(ratios[:, start::2], axis=1).argmin()
        changes.append(np.log(np.median(ratios[chosen, 1 - start :: 2])))
    return round(100 * float(np.expm1(np.mean(changes))), 4)


def tables(found: Outcomes) -> list[Table]:
    """The means by way and setting, and all programs."""
    return [_sums(found), _all(found)]


def _sums(found: Outcomes) -> Table:
    ways = {way: [one for (_, name), one in found.items() if name == way] for _, way in found}
    timed = {way: [one for one in own if one.times] for way, own in ways.items()}
    rows: list[list[Cell]] = []
    for number, setting in enumerate(SETTINGS):
        times = {way: [one.times[number] for one in own] for way, own in timed.items()}
        all_times = [change for own in times.values() for change in own]
        rows.append(
            [
                setting.name,
                *(_mean([change[0] for change in own]) for own in times.values()),
                sum(high < 0 for _, _, high in all_times) if all_times else None,
                sum(low > 0 for _, low, _ in all_times) if all_times else None,
                *(mean_change([one.text[number] for one in own]) for own in ways.values()),
            ]
        )
    best = [_mean([one.best for one in own]) for own in timed.values()]
    rows.append(["best of each program", *best, None, None, *[None] * len(ways)])
    programs = len({name for name, _ in found})
    return Table.of(
        "sums",
        f"What other constants change in {programs} programs built by a profile: geometric means "
        "of processor time and text, and how many builds are faster and slower by an interval "
        "without zero. The best setting of each program, or LLVM's, is chosen by half of the "
        "rounds and judged by the others.",
        {
            "setting": "text",
            **dict.fromkeys(ways, "percent:+1"),
            "faster": "integer",
            "slower": "integer",
            **{f"text, {way}": "percent:+1" for way in ways},
        },
        rows,
    )


def _mean(changes: Sequence[float]) -> float | Interval | None:
    return mean_change(changes) if changes else None


def _all(found: Outcomes) -> Table:
    rows: list[list[Cell]] = [
        [name, way, one.plain, *(one.times or (None,) * len(SETTINGS))]
        for (name, way), one in sorted(found.items(), key=lambda item: item[0][0])
    ]
    return Table.of(
        "programs",
        "Change of processor time: with LLVM's constants against plain `-O2`, and by each setting "
        "against LLVM's constants.",
        {
            "program": "text",
            "build": "text",
            "to plain": "percent:+1",
            **{setting.name: "percent:+1" for setting in SETTINGS},
        },
        rows,
    )
