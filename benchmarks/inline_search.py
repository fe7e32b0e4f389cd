# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How few instructions could any policy for inlining make programs execute beside PGO?

A search takes single decisions of PGO's compilations the other way, those about the hottest calls
and in the hottest functions first. Those that save instructions are then taken together, as far as
they save as much together. What was found is timed on an input by which nothing was chosen, by PGO
and by ThinLTO with PGO, before and after whose thin link the same decisions are given.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
from absl import logging

from benchmarks.changes import changes_table, counted_changes, percent_change
from benchmarks.common import TIMEOUT_S, saved
from benchmarks.inline_builds import FLAGS, InlineBuilds
from benchmarks.programs.workload import Workload
from benchmarks.programs.workloads import HELD_OUT, ONLY_ONCE, TIMED
from benchmarks.results import Cell, Table
from benchmarks.timing import LAYOUTS, ROUNDS, link_layouts, run_rounds
from benchmarks.ways import WAYS
from compiler_opt_perf.cost.size import text_bytes
from compiler_opt_perf.policy.problem import PROBLEMS, decision_lines, for_clang
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import exclusive, sha256, write_json
from compiler_opt_perf.run.memo import memo, note, numbered, recall
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.log import TrainingLog, read_log

# A flip of SQLite, which is one unit, takes half a minute.
PROGRAMS = tuple(one for one in HELD_OUT if one in TIMED and one not in (*ONLY_ONCE, "sqlite"))
#: Decisions of a program that are taken the other way.
MOST = 150
_PROBLEM = PROBLEMS["inline-size"]
# Decisions together must save so much of what they save one by one.
_ADDS_UP = 0.9
# Name of the folder of objects by other decisions.
_COMPILED = "compiled"
# A share of a program's instructions that is worth a decision; runs differ by less.
_RESOLVED = 1e-5
_PGO, _THIN = "PGO", "ThinLTO and PGO"
#: By what is timed, builds by the decisions found and by models/inline-speed, and the compiler's.
_ADDED = {
    name: (f"{way}{ending}", way)
    for way in (_PGO, _THIN)
    for name, ending in ((way, ", searched"), (f"{way}, inline-speed", " and rule"))
}
_WAYS = (_PGO, _THIN, *(way for way, _ in _ADDED.values()))


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
      Tables of all results in the folder; none if nothing was timed.

    Raises:
      CommandError: a compiler or a run failed.
      LogError: the compiler left a damaged log.
      BenchmarkError: programs of several ways compute different things, or a damaged result.
    """
    searches = {}
    with Pool() as pool:
        for program in programs:
            # Runs of a program write to the same files.
            with exclusive(folder / f"{program}.lock"):
                own = Search(InlineBuilds(program, folder / program, toolchain), most)
                found = own.found(pool)
                searches[program] = own
                for way in _WAYS:
                    own.layouts(way, found, layouts)
    if prepare:
        return []
    for program, own in searches.items():
        with exclusive(folder / f"{program}.lock"):
            write_json(folder / f"{program} search.json", own.result(rounds, layouts, processor))
    return tables(saved(folder, PROGRAMS, " search.json"))


class Site(msgspec.Struct, frozen=True):
    """A decision: the unit that asks for it, and its key."""

    unit: int
    key: str


class Flip(msgspec.Struct, frozen=True):
    """A decision taken the other way.

    Attributes:
      decision: 1 for inlining.
      instructions: what the program executes more.
    """

    site: Site
    decision: int
    instructions: int


class Found(msgspec.Struct, frozen=True):
    """What a search found in a program.

    Attributes:
      sites: decisions that the compiler takes.
      before, after: executed instructions with its own decisions and with what was found.
      flips: all that were tried.
      taken: those that were found good together.
    """

    sites: int
    before: int
    after: int
    flips: list[Flip]
    taken: list[Flip]


@dataclass(frozen=True)
class Linkage:
    """How a program is compiled and linked with some decisions given, and counted.

    Attributes:
      units: by unit, the words of its compilation without output and decisions.
      objects: by unit, what the compiler's own decisions make.
      libraries: options of the link.
      arguments: of the run.
    """

    toolchain: Toolchain
    units: tuple[tuple[str, ...], ...]
    objects: tuple[Path, ...]
    libraries: tuple[str, ...]
    arguments: tuple[str, ...]
    meter: Meter

    def compile(
        self, unit: int, given: Mapping[str, int], target: Path, *, profile: Path | None = None
    ) -> TrainingLog:
        """Compiles a unit with decisions given; returns the log of all. Raises CommandError."""
        log = target.with_suffix(".log")
        words = deciding(self.toolchain, given, log, profile)
        run_command([*self.units[unit], *words, "-o", target], timeout_s=TIMEOUT_S)
        return read_log(log)

    def count(self, flips: Sequence[Flip]) -> int:
        """The instructions that the program executes with some decisions taken otherwise."""
        decisions = by_unit(flips)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as executor:
            compiled = executor.map(self._compiled, decisions.items())
            changed = dict(zip(decisions, compiled, strict=True))
        objects = [changed.get(unit, path) for unit, path in enumerate(self.objects)]
        with tempfile.TemporaryDirectory(prefix="search-") as folder:
            program = Path(folder) / "program"
            clang = self.toolchain.clang
            run_command([clang, "-fuse-ld=lld", *objects, *self.libraries, "-o", program])
            return round(self.meter.measure([program, *self.arguments], TIMEOUT_S))

    def _compiled(self, task: tuple[int, Mapping[str, int]]) -> Path:
        """A unit by some decisions, compiled once."""
        unit, given = task
        target = numbered(self.objects[unit].parent / _COMPILED, [unit, given]).with_suffix(".o")
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                made = Path(folder) / "unit.o"
                self.compile(unit, given, made)
                made.replace(target)
        return target


def deciding(
    toolchain: Toolchain, given: Mapping[str, int], log: Path, profile: Path | None = None
) -> list[str]:
    """Words for clang: the compiler decides, but for decisions that are given; all are logged."""
    options = _PROBLEM.development_options(log=log, profile=profile)
    options += ["-mlgo-decision-keys", f"-litert-library={toolchain.litert_library}"]
    if given:
        path = log.with_suffix(".decisions")
        path.write_text(decision_lines(given))
        options.append(f"-mlgo-decisions={path}")
    return for_clang(options)


def by_unit(flips: Sequence[Flip]) -> dict[int, dict[str, int]]:
    """Decisions by unit and key."""
    found: dict[int, dict[str, int]] = {}
    for one in flips:
        found.setdefault(one.site.unit, {})[one.site.key] = one.decision
    return found


def _counted(task: tuple[Linkage, Sequence[Flip]]) -> int:
    """What a program executes, in a pool's worker: all its runs have paths of the same length."""
    linkage, flips = task
    return linkage.count(flips)


@dataclass
class Search:
    """The search of one program, in a folder of its own."""

    builds: InlineBuilds
    most: int

    def found(self, pool: Pool) -> Found:
        """Searches, unless that was done; goes on where it was interrupted."""
        path = self._folder / "found.json"
        inputs = {**self._inputs, "most": self.most}
        return memo(path, inputs, Found, lambda: self._search(pool))

    @cached_property
    def _folder(self) -> Path:
        folder = self.builds.folder / "search"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def run(self) -> Workload:
        """The run by which decisions are chosen; it is not the profiled one."""
        folder = self._folder / "run"
        folder.mkdir(exist_ok=True)
        return TIMED[self.builds.name](folder).to_record()

    @cached_property
    def _inputs(self) -> dict[str, Any]:
        """All that the search depends on."""
        return {
            "clang": sha256(self.builds.toolchain.clang.resolve()),
            "units": self.builds.built.units,
            "counters": sha256(self.builds.counters),
            "flags": FLAGS,
            **self.run.run_inputs(),
        }

    @cached_property
    def linkage(self) -> Linkage:
        """The program by PGO."""
        builds = self.builds
        flags = [*FLAGS, f"-fprofile-use={builds.counters}"]
        units = tuple(
            ("env", "-C", str(builds.built.directory), str(builds.toolchain.clang), *flags, *unit)
            for unit in builds.built.units
        )
        objects = tuple(self._folder / f"{number}.o" for number in range(len(units)))
        return Linkage(
            builds.toolchain,
            units,
            objects,
            (*builds.built.libraries, "-lstdc++"),
            self.run.arguments,
            find_meter("instructions", self._folder),
        )

    def _search(self, pool: Pool) -> Found:
        # What an interrupted search left there may be another compiler's.
        compiled = self._folder / _COMPILED
        shutil.rmtree(compiled, ignore_errors=True)
        compiled.mkdir()
        sites = self._sites()
        notes = self._folder / "flips.json"
        known = recall(notes, self._inputs, dict[str, int]) or {}

        def keep(task: tuple[Linkage, Sequence[Flip]], count: int) -> None:
            (flip,) = task[1]
            known[_name(flip.site)] = count
            note(notes, self._inputs, dict[str, int], known)

        def count(flips: Sequence[Flip]) -> int:
            (outcome,) = pool.map(_counted, [(self.linkage, flips)])
            return outcome.get()

        before = count([])
        chosen = dict(list(sites.items())[: self.most])
        tasks = [
            (self.linkage, [Flip(site, 1 - decision, 0)])
            for site, decision in chosen.items()
            if _name(site) not in known
        ]
        label = f"{self.builds.name}: decisions"
        for outcome in pool.map(_counted, tasks, label=label, keep=keep):
            outcome.get()
        flips = [
            Flip(site, 1 - decision, known[_name(site)] - before)
            for site, decision in chosen.items()
        ]
        least = _RESOLVED * before
        good = [one for one in flips if one.instructions < -least]
        taken, after = together(sorted(good, key=lambda one: one.instructions), before, count)
        shutil.rmtree(compiled)
        logging.info("%s: %d to %d instructions", self.builds.name, before, after)
        return Found(len(sites), before, after, flips, taken)

    def layouts(self, way: str, found: Found, number: int) -> list[Path]:
        """Links one of the `_WAYS` in `number` layouts. Raises CommandError."""
        if way in WAYS:
            return self.builds.layouts(way, number)
        objects = self._searched(way, found)
        targets = [objects[0].with_name(f"layout-{layout}") for layout in range(number)]
        inputs = {"objects": list(map(sha256, objects)), "layouts": number}
        memo(
            targets[0].with_name("layouts.json"),
            inputs,
            NoneType,
            lambda: link_layouts(objects, self.linkage.libraries, targets),
            targets,
        )
        return targets

    def _searched(self, way: str, found: Found) -> list[Path]:
        """The objects by the decisions that were found."""
        thin = way.startswith(_THIN)
        folder = self._folder / ("thin" if thin else "plain")
        folder.mkdir(exist_ok=True)
        objects = [folder / f"{number}.o" for number in range(len(self.linkage.units))]
        given = by_unit(found.taken)
        taken = {str(unit): dict(own) for unit, own in given.items()}

        def compile() -> None:
            if not thin:
                for unit, target in enumerate(objects):
                    self.linkage.compile(unit, given.get(unit, {}), target)
                return
            own = [
                deciding(self.builds.toolchain, given.get(unit, {}), target.with_suffix(".log"))
                for unit, target in enumerate(objects)
            ]
            flags = [*FLAGS, f"-fprofile-use={self.builds.counters}"]
            clang = self.builds.toolchain.clang
            self.builds.compile_thin(clang, flags, objects, None, None, own)

        inputs = {**self._inputs, "taken": taken}
        memo(folder / "objects.json", inputs, NoneType, compile, objects)
        return objects

    def result(self, rounds: int, layouts: int, processor: int) -> dict[str, Any]:
        """What the search found, and what it changes on the input by which nothing was chosen."""
        with Pool(1) as pool:
            found = self.found(pool)
        programs = {way: self.layouts(way, found, layouts) for way in _WAYS}
        run = self.builds.held_out
        times = run_rounds(
            self._folder / "rounds.json",
            programs,
            run.arguments,
            run.run_inputs(),
            rounds,
            processor,
            label=self.builds.name,
        )
        counted = {
            way: round(self.linkage.meter.measure([own[0], *run.arguments], TIMEOUT_S))
            for way, own in programs.items()
        }
        flips = found.flips
        return {
            "sites": found.sites,
            "tried": len(flips),
            "saving": sum(one.instructions < -_RESOLVED * found.before for one in flips),
            "taken": len(found.taken),
            "before": found.before,
            "after": found.after,
            "text": {way: text_bytes(own[0]) for way, own in programs.items()},
            "executed": counted,
            "run_s": times.run_s,
            "rounds": len(times.seconds),
            "changes": times.changes(_ADDED),
        }

    def _sites(self) -> dict[Site, int]:
        """All decisions, those about what runs most first, by what the compiler decides."""
        weights, found = {}, {}
        for unit, target in enumerate(self.linkage.objects):
            log = self.linkage.compile(unit, {}, target, profile=self.builds.profile)
            decisions = log.observations[_PROBLEM.decision].reshape(-1).tolist()
            calls = log.observations["pmu_callsite_executions_log2"].reshape(-1)
            callers = log.observations["pmu_caller_instructions_log2"].reshape(-1)
            for key, decision, weight in zip(
                log.keys, decisions, (calls + callers).tolist(), strict=True
            ):
                site = Site(unit, key)
                found[site] = decision
                weights[site] = weight
        return {site: found[site] for site in sorted(found, key=lambda one: -weights[one])}


def _name(site: Site) -> str:
    return f"{site.unit} {site.key}"


def together(
    flips: Sequence[Flip], before: int, count: Callable[[Sequence[Flip]], int]
) -> tuple[list[Flip], int]:
    """Of flips that save instructions one by one, those that do so together.

    Args:
      before: executed instructions without them.
      count: of some flips.

    Returns:
      The flips that are taken, and what the program executes with them.
    """
    taken: list[Flip] = []
    best = before
    waiting = [list(flips)] if flips else []
    while waiting:
        group = waiting.pop()
        now = count([*taken, *group])
        promised = -sum(one.instructions for one in group)
        if best - now >= _ADDS_UP * promised or (len(group) == 1 and now < best):
            taken += group
            best = now
        elif len(group) > 1:
            half = len(group) // 2
            waiting += [group[half:], group[:half]]
    return taken, best


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
        "Change of processor time by the decisions found and, beside it, by "
        "`models/inline-speed`; on an input by which nothing was chosen.",
        {"a run": "seconds:2", "rounds": "integer"},
        facts,
        {name: row["changes"] for name, row in results.items()},
        _ADDED,
    )
    none: dict[str, list[Cell]] = {name: [] for name in results}
    counts = [
        one
        for key, what in (("executed", "executed instructions"), ("text", "bytes of text"))
        for one in changes_table(
            key,
            f"Change of {what} in the same builds.",
            {},
            none,
            counted_changes({name: row[key] for name, row in results.items()}, _ADDED),
            _ADDED,
        )
    ]
    return [found, *times, *counts]
