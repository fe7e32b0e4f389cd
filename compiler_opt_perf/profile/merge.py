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
    """Writes one profile with the counts of several.

    Events of kind "sum" add up exactly. Executions add up each run's maximum over the line's
    instructions, which is too much only if runs took different paths through one line. For
    "hot-code-bytes" a line keeps its largest count, because code that is hot in two runs counts
    once.

    Args:
      paths: at least one manifest; the result has the first one's collector and command.
      output: NAME.pmu.json.
      allow_different: whether binaries, simulated caches, back-ends and scopes may differ.

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
            _require_same("build-id", first, other, lambda it: it.program.build_id)
            _require_same("back-end", first, other, lambda it: it.collector.backend)
            _require_same("caches", first, other, lambda it: it.collector.cache_geometry)
            _require_same("scope", first, other, lambda it: it.collector.scope)
        _require_same("events", first, other, lambda it: {e.name: e.kind for e in it.events})
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
        records = [manifest.event(event.name) for manifest in manifests]
        events.append(_sum(records))
        if known_event(event).merged == "max":
            files = [manifest.file(manifest.event(event.name)) for manifest in manifests]
            largest[event.name] = _largest(known_event(event), files)
            located = largest[event.name].located[0]
            total = located + max(record.total - record.located for record in records)
            events[-1] = dataclasses.replace(events[-1], total=total, located=located)

    def write(number: int, path: Path) -> None:
        name = events[number].name
        if name in largest:
            largest[name].write(largest[name].events[0], path)
        else:
            merge_profiles([manifest.file(manifest.event(name)) for manifest in manifests], path)

    return save_profile(output, first.program, collector, events, sources, functions, write)


def _functions(manifests: Sequence[Manifest]) -> FunctionTable | None:
    """The union of the profiles' function tables; None if no profile has one."""
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
                "checksums are left out, so that compilers cannot find stale samples",
                manifest.path,
                differing,
            )
    return merged


def _largest(event: Event, files: Sequence[Path]) -> SampleProfile:
    """The sample profile with each line's largest count among `files`."""
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
    """The merged event; its period is the largest one, so that precision is not overstated."""
    return dataclasses.replace(
        events[0],
        period=max(event.period for event in events),
        precise=all(event.precise for event in events),
        total=sum(event.total for event in events),
        located=sum(event.located for event in events),
        outside=sum(event.outside for event in events),
    )
