# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A search of single inlining decisions of a program by PGO: each is taken the other way.

Decisions about the hottest calls and in the hottest functions come first. Those that save
instructions are then taken together, as far as they save as much together.
"""

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from absl import logging

from benchmarks.common import TIMEOUT_S
from benchmarks.inline_builds import FLAGS, InlineBuilds
from benchmarks.programs.workload import Workload
from benchmarks.programs.workloads import TIMED
from compiler_opt_perf.policy.problem import PROBLEMS, decision_lines, for_clang
from compiler_opt_perf.run.command import run_command
from compiler_opt_perf.run.files import sha256
from compiler_opt_perf.run.memo import memo, note, numbered, recall
from compiler_opt_perf.run.pool import Pool
from compiler_opt_perf.run.scratch import with_long_path
from compiler_opt_perf.run.timing import Meter, find_meter
from compiler_opt_perf.toolchain.installation import Toolchain
from compiler_opt_perf.train.cost_sensitive import TreeSettings
from compiler_opt_perf.train.label_files import Labels
from compiler_opt_perf.train.log import TrainingLog, read_log
from compiler_opt_perf.train.recorded import PER_UNIT

PROBLEM = PROBLEMS["inline-size"]
#: What learns from labels, whose weights are in millionths of a program's cost. No kind is left
#: alone: what trees save in kinds that they do not know is what is asked.
TREES = TreeSettings(trees=100, leaves=8, leaf_rows=10, largest=1000.0, least_share=-1.0)
# Decisions together must save so much of what they save one by one.
_ADDS_UP = 0.9
# Name of the folder of objects by other decisions.
_COMPILED = "compiled"
# What a decision must save: a share of the program's instructions, and so many times the median
# absolute change by any decision. Most of them change the count by chance.
_RESOLVED, _DEVIATIONS = 1e-4, 3.0


class Site(msgspec.Struct, frozen=True):
    """A decision: the unit that asks for it, and its key."""

    unit: int
    key: str


class Flip(msgspec.Struct, frozen=True):
    """A decision taken the other way.

    Attributes:
      decision: 1 for inlining.
      change: of what is to be saved: executed instructions, or bytes.
    """

    site: Site
    decision: int
    change: int


class Found(msgspec.Struct, frozen=True):
    """What a search found in a program.

    Attributes:
      sites: decisions that the compiler takes.
      before: executed instructions with its own decisions, the median of all that was tried.
      after: with what was found.
      least: what a decision must save by itself.
      flips: all that were tried.
      taken: those that were found good together.
    """

    sites: int
    before: int
    after: int
    least: int
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
            return self.measured(program, self.arguments)

    def measured(self, program: Path, arguments: Sequence[str]) -> int:
        """The instructions that a linked program executes.

        Programs to compare run from paths of one length: Lua executes up to 1.3% more by that.
        """
        with tempfile.TemporaryDirectory(prefix="search-") as folder:
            copy = shutil.copy(program, with_long_path(Path(folder)) / "program")
            return round(self.meter.measure([copy, *arguments], TIMEOUT_S))

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
    options = PROBLEM.development_options(log=log, profile=profile)
    options += ["-mlgo-decision-keys", f"-litert-library={toolchain.litert_library}"]
    if given:
        path = log.with_suffix(".decisions")
        path.write_text(decision_lines(given))
        options.append(f"-mlgo-decisions={path}")
    return for_clang(options)


def index_only(folder: Path) -> list[str]:
    """Words of a link that writes indices only: one beside each module, their names to `names`."""
    return [f"-Wl,--thinlto-index-only={folder / 'names'}", "-o", str(folder / "none")]


def indexed(module: str) -> list[str]:
    """Words for clang: a module of a thin link is compiled to an object by its index."""
    words = ["-fno-lto", "-w", "-ffunction-sections", "-c", "-x", "ir", module]
    return [*words, f"-fthinlto-index={module}.thinlto.bc"]


def by_unit(flips: Sequence[Flip]) -> dict[int, dict[str, int]]:
    """Decisions by unit and key."""
    found: dict[int, dict[str, int]] = {}
    for one in flips:
        found.setdefault(one.site.unit, {})[one.site.key] = one.decision
    return found


def _counted(task: tuple[Linkage, Sequence[Flip]]) -> int:
    """What a program executes, in a pool's worker."""
    linkage, flips = task
    return linkage.count(flips)


@dataclass
class Search:
    """The search of one program, in a folder of its own."""

    builds: InlineBuilds
    most: int

    def found(self, pool: Pool) -> Found:
        """Searches, unless that was done; goes on where it was interrupted."""
        path = self.folder / "found.json"
        inputs = {**self.inputs, "most": self.most, "least": [_RESOLVED, _DEVIATIONS]}
        return memo(path, inputs, Found, lambda: self._search(pool))

    def labels(self, found: Found) -> Labels:
        """What the search tried, as labels of decisions; the program is one module."""
        logs = {
            unit: read_log(self.linkage.objects[unit].with_suffix(".log"))
            for unit in {one.site.unit for one in found.flips}
        }
        changes = {one.site: PER_UNIT * one.change / found.before for one in found.flips}
        return labels_of(self.builds.name, changes, found.before, logs)

    @cached_property
    def folder(self) -> Path:
        """For what the search leaves, within that of the builds."""
        folder = self.builds.folder / "search"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def run(self) -> Workload:
        """The run by which decisions are chosen; it is not the profiled one."""
        folder = self.folder / "run"
        folder.mkdir(exist_ok=True)
        return TIMED[self.builds.name](folder).to_record()

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """All that the search depends on."""
        return {
            "clang": sha256(self.builds.toolchain.clang.resolve()),
            "units": self.builds.built.units,
            "counters": sha256(self.builds.counters),
            "flags": FLAGS,
            **self.run.run_inputs(),
        }

    @property
    def flags(self) -> list[str]:
        """Of clang, by PGO."""
        return [*FLAGS, f"-fprofile-use={self.builds.counters}"]

    @cached_property
    def linkage(self) -> Linkage:
        """The program by PGO."""
        builds = self.builds
        start = ("env", "-C", str(builds.built.directory), str(builds.toolchain.clang), *self.flags)
        units = tuple((*start, *unit) for unit in builds.built.units)
        objects = tuple(self.folder / f"{number}.o" for number in range(len(units)))
        return Linkage(
            builds.toolchain,
            units,
            objects,
            tuple(builds.libraries),
            self.run.arguments,
            find_meter("instructions", self.folder),
        )

    def _search(self, pool: Pool) -> Found:
        # What an interrupted search left there may be another compiler's.
        compiled = self.folder / _COMPILED
        shutil.rmtree(compiled, ignore_errors=True)
        compiled.mkdir()
        sites = self._sites()
        notes = self.folder / "flips.json"
        known = recall(notes, self.inputs, dict[str, int]) or {}

        def keep(task: tuple[Linkage, Sequence[Flip]], count: int) -> None:
            (flip,) = task[1]
            known[site_name(flip.site)] = count
            note(notes, self.inputs, dict[str, int], known)

        def count(flips: Sequence[Flip]) -> int:
            (outcome,) = pool.map(_counted, [(self.linkage, flips)])
            return outcome.get()

        chosen = dict(list(sites.items())[: self.most])
        tasks = [
            (self.linkage, [Flip(site, 1 - decision, 0)])
            for site, decision in chosen.items()
            if site_name(site) not in known
        ]
        label = f"{self.builds.name}: decisions"
        for outcome in pool.map(_counted, tasks, label=label, keep=keep):
            outcome.get()
        counts = {site: known[site_name(site)] for site in chosen}
        # One build alone may be lucky: tcc's executes 0.4% more than with most decisions flipped.
        before = round(statistics.median([count([]), *counts.values()]))
        flips = [
            Flip(site, 1 - decision, counts[site] - before) for site, decision in chosen.items()
        ]
        spread = statistics.median(abs(one.change) for one in flips)
        least = round(max(_RESOLVED * before, _DEVIATIONS * spread))
        good = [one for one in flips if one.change < -least]
        taken, after = together(sorted(good, key=lambda one: one.change), before, count)
        shutil.rmtree(compiled)
        logging.info("%s: %d to %d instructions", self.builds.name, before, after)
        return Found(len(sites), before, after, least, flips, taken)

    def _sites(self) -> dict[Site, int]:
        """All decisions, those about what runs most first, by what the compiler decides."""
        weights, found = {}, {}
        for unit, target in enumerate(self.linkage.objects):
            log = self.linkage.compile(unit, {}, target, profile=self.builds.profile)
            for key, decision, weight in weighted(log):
                site = Site(unit, key)
                found[site] = decision
                weights[site] = weight
        return {site: found[site] for site in sorted(found, key=lambda one: -weights[one])}


def percent(changes: npt.NDArray[np.float64]) -> float:
    """The sum of changes in millionths, in percent."""
    return round(float(changes.sum()) / 1e4, 4)


def weighted(log: TrainingLog) -> Iterator[tuple[str, int, float]]:
    """The key of each decision, what was decided, and how much runs there by the profile."""
    columns = [
        log.observations[name].reshape(-1).tolist()
        for name in (
            PROBLEM.decision,
            "pmu_callsite_executions_log2",
            "pmu_caller_instructions_log2",
        )
    ]
    for key, decision, calls, caller in zip(log.keys, *columns, strict=True):
        yield key, decision, calls + caller


def labels_of(
    program: str, changes: Mapping[Site, float], cost: float, logs: Mapping[int, TrainingLog]
) -> Labels:
    """Labels of a program, which is one module.

    Args:
      changes: by decision, what taking it the other way changes, in what is to be learnt: bytes, or
        millionths of the cost.
      cost: of the program.
      logs: by unit, of its decisions.
    """
    places = {unit: {key: row for row, key in enumerate(log.keys)} for unit, log in logs.items()}
    rows = [logs[one.unit].observations[[places[one.unit][one.key]]] for one in changes]
    observations, none = np.concatenate(rows), rows[0][:0]
    keys, differences = tuple(map(site_name, changes)), np.array(list(changes.values()))
    return Labels(program, keys, observations, none, differences, cost, len(changes))


def site_name(site: Site) -> str:
    """A decision in the program."""
    return f"{site.unit} {site.key}"


def together(
    flips: Sequence[Flip], before: int, count: Callable[[Sequence[Flip]], int]
) -> tuple[list[Flip], int]:
    """Of flips that save something one by one, those that do so together.

    Args:
      before: executed instructions without them, or bytes.
      count: the same with some flips.

    Returns:
      The flips that are taken, and the count with them.
    """
    taken: list[Flip] = []
    best = before
    waiting = [list(flips)] if flips else []
    while waiting:
        group = waiting.pop()
        now = count([*taken, *group])
        promised = -sum(one.change for one in group)
        if best - now >= _ADDS_UP * promised or (len(group) == 1 and now < best):
            taken += group
            best = now
        elif len(group) > 1:
            half = len(group) // 2
            waiting += [group[half:], group[:half]]
    return taken, best
