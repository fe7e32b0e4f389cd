# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What could any policy for inlining gain on top of PGO, and could it be learnt?

Single decisions are searched by instructions (`inline_flips`). What was found is timed on an input
by which nothing was chosen, by PGO and by ThinLTO with PGO, before and after whose thin link the
same decisions are given. Trees learn from the decisions of all programs but one when to decide
otherwise than the compiler; what they save in that one tells whether there is anything to learn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from benchmarks.changes import changes_table, counted_changes, percent_change
from benchmarks.common import saved
from benchmarks.inline_builds import InlineBuilds
from benchmarks.inline_flips import PROBLEM, TREES, Found, Search, by_unit, deciding, percent
from benchmarks.programs.workloads import HELD_OUT, ONLY_ONCE, TIMED
from benchmarks.results import Cell, Table
from benchmarks.shuffled import exchanged
from benchmarks.timing import LAYOUTS, ROUNDS, run_rounds
from benchmarks.ways import WAYS
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.run.files import exclusive, sha256, write_json
from compiler_opt_perf.run.memo import memo
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.cost_sensitive import Inputs, Trees
from compiler_opt_perf.train.label_files import Labels, labelled_rows

# A flip of SQLite, which is one unit, takes half a minute.
PROGRAMS = tuple(one for one in HELD_OUT if one in TIMED and one not in (*ONLY_ONCE, "sqlite"))
#: Decisions of a program that are taken the other way.
MOST = 150
_PGO, _THIN = "PGO", "ThinLTO and PGO"
#: By what is timed, builds by the decisions found and by models/inline-speed, and the compiler's.
_ADDED = {
    name: (f"{way}{ending}", way)
    for way in (_PGO, _THIN)
    for name, ending in ((way, ", searched"), (f"{way}, inline-speed", " and rule"))
}
_WAYS = (_PGO, _THIN, *(way for way, _ in _ADDED.values()))
_SEED = 1
#: What trees read, by column: the static features, those of the profile, too, and with the latter
#: of another decision of the same program.
_READ = ("static features", "with PMU features", "with exchanged PMU features")


def study(
    programs: Sequence[str],
    folder: Path,
    toolchain: Toolchain,
    *,
    most: int = MOST,
    rounds: int = ROUNDS,
    layouts: int = LAYOUTS,
    processor: int = 0,
    prepare: bool = False,
) -> list[Table]:
    """Searches some of the `PROGRAMS`, and times what was found.

    Args:
      folder: for builds and results; `inline_speed` shares it, for its builds are the same.
      most: decisions of a program that are taken the other way.
      rounds, layouts, processor: as of `policies.study`.
      prepare: all but the times.

    Returns:
      Tables of all results in the folder, what can be learnt from the programs given; none if
      nothing was timed.

    Raises:
      CommandError: a compiler or a run failed.
      LogError: the compiler left a damaged log.
      BenchmarkError: programs of several ways compute different things, or a damaged result.
    """
    searched = {}
    with Pool() as pool:
        for program in programs:
            # Runs of a program write to the same files.
            with exclusive(folder / f"{program}.lock"):
                search = Search(InlineBuilds(program, folder / program, toolchain), most)
                searched[program] = own = Searched(search, search.found(pool))
                for way in _WAYS:
                    own.layouts(way, layouts)
    if prepare:
        return []
    for program, own in searched.items():
        with exclusive(folder / f"{program}.lock"):
            write_json(folder / f"{program} search.json", own.result(rounds, layouts, processor))
    labels = [own.search.labels(own.found) for own in searched.values()]
    return [*tables(saved(folder, PROGRAMS, " search.json")), *learnt(labels)]


@dataclass
class Searched:
    """A searched program, and its builds by what was found."""

    search: Search
    found: Found

    def layouts(self, way: str, number: int) -> list[Path]:
        """Links one of the `_WAYS` in `number` layouts. Raises CommandError."""
        builds = self.search.builds
        if way in WAYS:
            return builds.layouts(way, number)
        return builds.linked(self._objects(is_thin=way.startswith(_THIN)), number)

    def _objects(self, *, is_thin: bool) -> list[Path]:
        """The objects by the decisions that were found."""
        search, builds = self.search, self.search.builds
        folder = search.folder / ("thin" if is_thin else "plain")
        folder.mkdir(exist_ok=True)
        objects = [folder / path.name for path in search.linkage.objects]
        given = by_unit(self.found.taken)

        def compile() -> None:
            clang = builds.toolchain.clang
            own = [
                deciding(builds.toolchain, given.get(unit, {}), target.with_suffix(".log"))
                for unit, target in enumerate(objects)
            ]
            builds.compile(clang, search.flags, objects, thin=is_thin, own=own)

        inputs = {**search.inputs, "given": {str(unit): own for unit, own in given.items()}}
        memo(folder / "objects.json", inputs, NoneType, compile, objects)
        return objects

    def result(self, rounds: int, layouts: int, processor: int) -> dict[str, Any]:
        """What the search found, and what it changes on the input by which nothing was chosen."""
        programs = {way: self.layouts(way, layouts) for way in _WAYS}
        run, linkage, found = self.search.builds.held_out, self.search.linkage, self.found
        times = run_rounds(
            self.search.folder / "rounds.json",
            programs,
            run.arguments,
            run.run_inputs(),
            rounds,
            processor,
            label=self.search.builds.name,
        )

        def counted() -> dict[str, int]:
            return {way: linkage.measured(own[0], run.arguments) for way, own in programs.items()}

        binaries = [sha256(own[0]) for own in programs.values()]
        inputs = {"binaries": binaries, **run.run_inputs()}
        counts = memo(self.search.folder / "counted.json", inputs, dict[str, int], counted)
        return {
            "sites": found.sites,
            "tried": len(found.flips),
            "saving": sum(one.change < -found.least for one in found.flips),
            "taken": len(found.taken),
            "before": found.before,
            "after": found.after,
            "text": {way: text_bytes(own[0]) for way, own in programs.items()},
            "executed": counts,
            "run_s": times.run_s,
            "rounds": len(times.seconds),
            "changes": times.changes(_ADDED),
        }


def learnt(labels: Sequence[Labels]) -> list[Table]:
    """What trees save in each program that learnt from all others, in percent of instructions."""
    if len(labels) < 2:
        return []
    inputs, advantage, groups = labelled_rows(PROBLEM, labels, with_pmu=True)
    static = [one.name for one in PROBLEM.inputs(with_pmu=False)]
    read: list[Inputs] = [
        {name: inputs[name] for name in static},
        inputs,
        exchanged(inputs, static, groups, _SEED),
    ]
    names = sorted(one.module for one in labels)
    rows: list[list[Cell]] = []
    for number, name in enumerate(names):
        own = groups == number
        changes: list[Cell] = [percent(-advantage[own & (advantage > 0)])]
        for one in read:
            others = {key: values[~own] for key, values in one.items()}
            trees = Trees.fit(others, advantage[~own], groups[~own], TREES, _SEED)
            chosen = trees.otherwise({key: values[own] for key, values in one.items()}) > 0.5
            changes.append(percent(-advantage[own][chosen]))
        rows.append([name, int(own.sum()), *changes])
    return [
        Table.of(
            "learnt",
            "Sum of what single decisions change in the instructions of a program: of all that "
            "save some, and of those that trees choose, which learnt from the other programs.",
            {
                "program": "text",
                "decisions": "integer",
                "all that save": "percent:+2",
                **dict.fromkeys(_READ, "percent:+2"),
            },
            rows,
        )
    ]


def tables(results: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """What the searches found, and changes of time, instructions and text by it."""
    rows: list[list[Cell]] = [
        [
            name,
            *(row[key] for key in ("sites", "tried", "saving", "taken")),
            percent_change(row["after"], row["before"]),
        ]
        for name, row in results.items()
    ]
    found = Table.of(
        "found",
        "Decisions of each program by PGO: all, those taken the other way, those that save "
        "instructions alone, and together; and what these change in the run that chose them.",
        {
            "program": "text",
            "decisions": "integer",
            "tried": "integer",
            "saving": "integer",
            "taken": "integer",
            "instructions": "percent:+2",
        },
        rows,
    )
    facts: dict[str, list[Cell]] = {
        name: [row["run_s"], row["rounds"]] for name, row in results.items()
    }
    times = changes_table(
        "time",
        "Change of processor time of the same builds and runs.",
        {"a run": "seconds:2", "rounds": "integer"},
        facts,
        {name: row["changes"] for name, row in results.items()},
        _ADDED,
    )
    none: dict[str, list[Cell]] = {name: [] for name in results}
    counts = [
        one
        for key, caption in (
            (
                "executed",
                "Change of executed instructions by the decisions found and, beside it, by "
                "`models/inline-speed`; on an input by which nothing was chosen.",
            ),
            ("text", "Change of bytes of text of the same builds."),
        )
        for one in changes_table(
            key,
            caption,
            {},
            none,
            counted_changes({name: row[key] for name, row in results.items()}, _ADDED),
            _ADDED,
        )
    ]
    return [found, *times, *counts]
