# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds up PMU profiles of several runs."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import logging

from compiler_opt_perf.binary.symbolize import DeclaredAt
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.events import Event
from compiler_opt_perf.profile.function_table import FunctionTable
from compiler_opt_perf.profile.manifest import SUFFIX, EventFile, Manifest
from compiler_opt_perf.profile.profile import known_event, read_sources
from compiler_opt_perf.profile.sample_profile import SampleProfile, merge_profiles
from compiler_opt_perf.profile.store import save_profile


def merge(paths: Sequence[Path], output: Path, *, allow_different: bool = False) -> Manifest:
    """Writes the profile of all runs together: the counts of each line are the sums.

    Events of kind "sum" become exactly what one longer run would have counted. Executions are
    sums of each run's maximum over the line's instructions, which is the same unless the runs
    took different paths through one line. Of "hot-code-bytes" a line keeps the largest count: code
    that was hot in two runs is needed once.

    Args:
      paths: at least one manifest; collector and command of the result are those of the first.
      output: NAME.pmu.json.
      allow_different: add up profiles of different binaries, simulated caches, back-ends or
        scopes, instead of refusing to.

    Raises:
      PmuError: a profile cannot be read, or the profiles do not belong together.
      CommandError: llvm-profdata failed.
      FileWriteError: disk full, or the folder cannot be written.
    """
    if not output.name.endswith(SUFFIX):
        raise PmuError(f"{output}: the name of a PMU profile must end with {SUFFIX}")
    manifests = [Manifest.load(path) for path in paths]
    first = manifests[0]
    for other in manifests[1:]:
        if not allow_different:
            _require_same("build-id", first, other, lambda one: one.program.build_id)
            _require_same("back-end", first, other, lambda one: one.collector.backend)
            _require_same("caches", first, other, lambda one: one.collector.cache_geometry)
            _require_same("scope", first, other, lambda one: one.collector.scope)
        _require_same("events", first, other, lambda one: {e.name: e.kind for e in one.events})
    collector = dataclasses.replace(
        first.collector, runs=sum(manifest.collector.runs for manifest in manifests)
    )
    sources: dict[str, DeclaredAt] = {}
    for manifest in reversed(manifests):
        sources.update(read_sources(manifest))
    functions = _functions(manifests)
    events = []
    largest: dict[str, SampleProfile] = {}
    for event in first.events:
        records = [one.event(event.name) for one in manifests]
        events.append(_sum(records))
        if known_event(event).merged == "max":
            files = [one.file(one.event(event.name)) for one in manifests]
            largest[event.name] = _largest(known_event(event), files)
            located = largest[event.name].located[0]
            total = located + max(record.total - record.located for record in records)
            events[-1] = dataclasses.replace(events[-1], total=total, located=located)

    def write(number: int, path: Path) -> None:
        name = events[number].name
        if name in largest:
            largest[name].write(largest[name].events[0], path)
        else:
            merge_profiles([one.file(one.event(name)) for one in manifests], path)

    return save_profile(output, first.program, collector, events, sources, functions, write)


def _functions(manifests: Sequence[Manifest]) -> FunctionTable | None:
    """The functions of all binaries; None when no profile knows those of its binary.

    One that is in no sample profile of the merged runs did not run in any.
    """
    merged: FunctionTable | None = None
    for manifest in manifests:
        table = manifest.read_functions()
        if table is None or merged is None:
            merged = merged or table
            continue
        merged, differing = merged.merged(table)
        if differing:
            logging.warning(
                "%s: %d functions have another control flow than in the profiles before; their "
                "checksums are left out, so that no compilation can tell that they changed",
                manifest.path,
                differing,
            )
    return merged


def _largest(event: Event, files: Sequence[Path]) -> SampleProfile:
    """A profile with the largest count of each line in `files`."""
    columns = [dataclasses.replace(event, name=str(number)) for number in range(len(files))]
    samples = SampleProfile(columns)
    for column, file in zip(columns, files, strict=True):
        samples.read(column, file)
    return samples.largest(event)


def _require_same(
    what: str, first: Manifest, other: Manifest, part: Callable[[Manifest], object]
) -> None:
    mine, theirs = part(first), part(other)
    if mine != theirs:
        remedy = (
            "collect them again with one version"
            if what == "events"
            else "merge profiles of one binary and one way of collecting, or say that the "
            "difference is meant (--force)"
        )
        raise PmuError(
            f"{other.path}: its {what} {theirs} differs from {mine} of {first.path}; {remedy}"
        )


def _sum(events: Sequence[EventFile]) -> EventFile:
    """The merged event. Its period is the largest, so that it claims no more than is known."""
    return dataclasses.replace(
        events[0],
        period=max(event.period for event in events),
        precise=all(event.precise for event in events),
        total=sum(event.total for event in events),
        located=sum(event.located for event in events),
        outside=sum(event.outside for event in events),
    )
