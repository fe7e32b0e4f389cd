# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does any program become slower by the policies in models/? Forty programs, by the clock.

Each is built by its own build system in the ways of `cop try`, profiled, and timed on the profiled
run: what is worse on a few programs is seen. `programs/forty.toml` has the programs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.changes import mean_and_resolved, mean_change, measured, percent_change
from benchmarks.programs.forty import Program, in_turn, read_table, requests, side_by_side
from benchmarks.results import Cell, Interval, Table
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.profile.manifest import Manifest
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.rounds import paired_change
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.trial.result import Trial
from compiler_opt_perf.trial.trial import Request, prepare_ways, try_ways
from compiler_opt_perf.trial.ways import PGO, SMALL_COLD, SPEED

PROGRAMS = {program.name: program for program in read_table().program}
ROUNDS = 15
#: A change of time, in percent, from which a slower program is a fault of its way.
HARM = 3.0
#: Plain, AutoFDO, the policies, builds by counters of an instrumented run; the builds by a profile
#: with what is cold compiled for size.
WAYS = (*SPEED[:3], *PGO, *SMALL_COLD.values())
_AUTOFDO, _POLICIES, *_COUNTED = (way.name for way in (*SPEED[1:3], *PGO))
#: By the name of a way with small cold code, the one without.
_SMALL = {small.name: way.name for way, small in SMALL_COLD.items()}
#: In the order of tables.
_COMPARED = (_POLICIES, _AUTOFDO, *_COUNTED)
_WORST = 10
_CACHE = CacheGeometry().ll
_MISPREDICTS = 1.0


class Facts(msgspec.Struct, frozen=True):
    """What the profiled run of plain did; misses and mispredictions are simulated.

    Attributes:
      build_s: wall time of plain's build, other builds beside it.
      instructions: in all objects.
      missed_bytes: bytes of the lines that loads fetched from memory.
      mispredicts: of conditional branches, in percent.
    """

    build_s: float
    instructions: int
    missed_bytes: int
    mispredicts: float

    @property
    def is_hard(self) -> bool:
        """Whether it loads more than the last-level cache holds, or mispredicts above 1%."""
        return self.missed_bytes > _CACHE.size or self.mispredicts > _MISPREDICTS


class Outcome(msgspec.Struct, frozen=True):
    """What the clock says of a program; changes are in percent.

    Attributes:
      seconds: of a run of plain.
      resolution: what plain in other layouts does.
      changes: of time against plain, with its 95% interval, by way.
      small: the same for a way with small cold code against the one without.
      text: change of the machine code's bytes, by way.
      file: change of the stripped file's bytes, by way.
      same_output: by way, whether it prints what plain does; None if plain's output varies.
    """

    seconds: float
    resolution: float
    changes: dict[str, Interval]
    small: dict[str, Interval]
    text: dict[str, float]
    file: dict[str, float]
    same_output: dict[str, bool | None]

    def small_text(self, way: str) -> float:
        """Change of the machine code's bytes by small cold code, in percent."""
        return percent_change(100 + self.text[way], 100 + self.text[_SMALL[way]])

    def is_slower(self, way: str) -> bool:
        """Whether a way is slower by `HARM` at least, beyond chance."""
        value, low, _ = self.changes[way]
        return value >= HARM and low > 0 and value > self.resolution

    def verdict(self, way: str) -> str:
        """What a way does to the program, in a word."""
        value, low, high = self.changes[way]
        if self.same_output[way] is False:
            return "wrong output"
        if self.is_slower(way):
            return "slower"
        if (low > 0 or high < 0) and abs(value) > self.resolution:
            return "a little slower" if value > 0 else "faster"
        return "not resolved"


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    rounds: int = ROUNDS,
    prepare: bool = False,
    table: Mapping[str, Program] = PROGRAMS,
) -> list[Table]:
    """Times programs; one that cannot be built or run is logged and left out.

    Args:
      folder: for inputs, builds and results; what is there is not done again.
      rounds: timed runs of each way.
      prepare: only builds, profiles and links, which needs no idle machine; there are no times.
      table: the programs by name.
    """
    own = [table[name] for name in programs]
    with Pool() as pool:
        asked = requests(own, folder, toolchain, WAYS, rounds)
        facts = side_by_side(pool, _prepared, asked, "building and profiling programs")
    timed = {} if prepare else {name: asked[name] for name in facts}
    found = in_turn(lambda one: _outcome(try_ways(*one)), timed, "timing programs")
    times = time_tables(found, table) if found else []
    return [*times, _programs(facts, table)] if facts else []


def _prepared(asked: tuple[Request, Path]) -> Facts:
    """Builds and profiles a program, and links its layouts."""
    prepared = prepare_ways(*asked)
    prepared.in_layouts(asked[0].rounds)
    assert prepared.profile is not None
    _, plain = prepared.builds[WAYS[0]]
    return _facts(Manifest.load(prepared.profile), plain.seconds)


def _facts(manifest: Manifest, build_s: float) -> Facts:
    def total(name: str) -> int:
        return manifest.event(name).everywhere

    branches = total("conditional-branches")
    return Facts(
        build_s,
        total("instructions"),
        total("llc-load-misses") * _CACHE.line,
        round(100 * total("conditional-branch-mispredicts") / max(branches, 1), 4),
    )


def _outcome(trial: Trial) -> Outcome:
    plain, *others = trial.ways
    rounds = {way.name: way.runs[0].round_seconds for way in others}
    return Outcome(
        plain.runs[0].seconds,
        100 * trial.runs[0].resolution,
        {way.name: measured(way.runs[0].time_change) for way in others},
        {
            small: measured(paired_change(rounds[small], rounds[way]))
            for small, way in _SMALL.items()
        },
        {way.name: 100 * way.text_change for way in others},
        {way.name: 100 * way.file_change for way in others},
        {way.name: way.runs[0].same_output for way in others},
    )


def time_tables(found: Mapping[str, Outcome], table: Mapping[str, Program]) -> list[Table]:
    """The worst programs, the sums by half, and all programs: times, text, small cold code."""
    return [
        *(_worst(found, table), _sums(found, table), _all(found, table), _texts(found, table)),
        *(_small_sums(found), _small_programs(found)),
    ]


def _worst(found: Mapping[str, Outcome], table: Mapping[str, Program]) -> Table:
    order = sorted(found, key=lambda name: -found[name].changes[_POLICIES][0])[:_WORST]
    slower = {way: [name for name, one in found.items() if one.is_slower(way)] for way in _COMPARED}
    told = "; ".join(f"{way}: {', '.join(names) or 'none'}" for way, names in slower.items())
    rows: list[list[Cell]] = [
        [
            name,
            table[name].kind,
            table[name].set,
            found[name].changes[_POLICIES],
            found[name].resolution,
            found[name].verdict(_POLICIES),
            *(found[name].changes[way] for way in _COMPARED[1:]),
        ]
        for name in order
    ]
    return Table.of(
        "worst",
        f"The {len(order)} of {len(found)} programs that lose most, or gain least, by the "
        "policies. Change of processor time against plain `-O2`. Slower by a resolved "
        f"{HARM:g}%: {told}.",
        {
            "program": "text",
            "kind": "text",
            "set": "text",
            "policies": "percent:+1",
            "chance": "percent:1",
            "verdict": "text",
            **dict.fromkeys(_COMPARED[1:], "percent:+1"),
        },
        rows,
    )


def _sums(found: Mapping[str, Outcome], table: Mapping[str, Program]) -> Table:
    rows: list[list[Cell]] = []
    for half in ("choose", "judge"):
        own = [one for name, one in found.items() if table[name].set == half]
        for way in _COMPARED if own else ():
            words = [one.verdict(way) for one in own]
            mean = mean_change([one.changes[way][0] for one in own])
            text = mean_change([one.text[way] for one in own])
            counts = [words.count(word) for word in ("faster", "a little slower", "slower")]
            rows.append([half, way, len(own), mean, *counts, text])
    return Table.of(
        "sums",
        "Geometric means by half, and how many programs are resolved to be faster, slower by less "
        f"than {HARM:g}%, and slower by that or more.",
        {
            "set": "text",
            "way": "text",
            "programs": "integer",
            "time": "percent:+1",
            "faster": "integer",
            "a little slower": "integer",
            "slower": "integer",
            "text": "percent:+1",
        },
        rows,
    )


def _all(found: Mapping[str, Outcome], table: Mapping[str, Program]) -> Table:
    rows: list[list[Cell]] = [
        [name, table[name].set, one.seconds, *(one.changes[way] for way in _COMPARED)]
        for name, one in sorted(found.items())
    ]
    return Table.of(
        "times",
        "Change of processor time against plain `-O2`, all programs.",
        {
            "program": "text",
            "set": "text",
            "a run": "seconds:2",
            **dict.fromkeys(_COMPARED, "percent:+1"),
        },
        rows,
    )


def _texts(found: Mapping[str, Outcome], table: Mapping[str, Program]) -> Table:
    rows: list[list[Cell]] = [
        [name, table[name].set, *(one.text[way] for way in _COMPARED)]
        for name, one in sorted(found.items())
    ]
    return Table.of(
        "texts",
        "Change of linked text against plain `-O2`, all programs.",
        {"program": "text", "set": "text", **dict.fromkeys(_COMPARED, "percent:+1")},
        rows,
    )


def _small_sums(found: Mapping[str, Outcome]) -> Table:
    rows: list[list[Cell]] = []
    own = found.values()
    for way in (one for small, base in _SMALL.items() for one in (base, small)):
        beside: list[Cell] = [None] * 4
        if way in _SMALL:
            beside = [
                *mean_and_resolved([one.small[way] for one in own]),
                mean_change([one.small_text(way) for one in own]),
            ]
        rows.append(
            [
                way,
                mean_change([one.changes[way][0] for one in own]),
                mean_change([one.text[way] for one in own]),
                mean_change([one.file[way] for one in own]),
                *beside,
            ]
        )
    return Table.of(
        "small-sums",
        f"Geometric means of {len(found)} programs against plain `-O2`; of small cold code against "
        "the same build without it, too, with the programs whose interval leaves out zero.",
        {
            "build": "text",
            "time": "percent:+1",
            "text": "percent:+1",
            "file": "percent:+1",
            "time, to without": "percent:+1",
            "faster": "integer",
            "slower": "integer",
            "text, to without": "percent:+1",
        },
        rows,
    )


def _small_programs(found: Mapping[str, Outcome]) -> Table:
    rows: list[list[Cell]] = [
        [
            name,
            *(one.small[way] for way in _SMALL),
            *(one.small_text(way) for way in _SMALL),
        ]
        for name, one in sorted(found.items())
    ]
    return Table.of(
        "small-programs",
        "What small cold code changes in a build: processor time and linked text.",
        {
            "program": "text",
            **{f"time, {way}": "percent:+1" for way in _SMALL.values()},
            **{f"text, {way}": "percent:+1" for way in _SMALL.values()},
        },
        rows,
    )


def _programs(facts: Mapping[str, Facts], table: Mapping[str, Program]) -> Table:
    hard = sum(one.is_hard for one in facts.values())
    rows: list[list[Cell]] = [
        [
            name,
            table[name].kind,
            table[name].language,
            table[name].system,
            table[name].set,
            one.build_s,
            one.instructions / 1e6,
            one.missed_bytes / 2**20,
            one.mispredicts,
        ]
        for name, one in sorted(facts.items())
    ]
    return Table.of(
        "programs",
        f"What the runs of plain are like, simulated. Of {len(facts)}, {hard} fetch more from "
        f"memory than the {_CACHE.size >> 20} MiB of the last level, or mispredict more than "
        f"{_MISPREDICTS:g}% of their conditional branches.",
        {
            "program": "text",
            "kind": "text",
            "language": "text",
            "built by": "text",
            "set": "text",
            "build": "seconds:1",
            "million instructions": "number:0",
            "MiB from memory": "number:1",
            "mispredicted": "percent:1",
        },
        rows,
    )
