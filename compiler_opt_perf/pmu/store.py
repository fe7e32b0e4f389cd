# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the files of a PMU profile: all of them, or none."""

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from compiler_opt_perf.execution.files import FileWriteError, atomic_write
from compiler_opt_perf.pmu.events import RATES, Rate
from compiler_opt_perf.pmu.manifest import (
    SUFFIX,
    Collector,
    EventFile,
    FileRecord,
    Manifest,
    Program,
)
from compiler_opt_perf.pmu.rates import trial_size
from compiler_opt_perf.pmu.sample_profile import flatten_profile
from compiler_opt_perf.pmu.symbolize import Source


def save_profile(
    path: Path,
    program: Program,
    collector: Collector,
    events: Sequence[EventFile],
    sources: Mapping[str, Source],
    write: Callable[[int, Path], None],
) -> Manifest:
    """Writes a manifest and beside it its sample profiles, flattened ones too, and its sources.

    Args:
      path: NAME.pmu.json.
      events: as they shall stand in the manifest, but for the records of their files.
      sources: where functions are, by linkage name.
      write: writes the sample profile of the event of the given number to the given path.

    Raises:
      FileWriteError: disk full, or the folder cannot be written.
      MissingToolError: llvm-profdata is not installed.
      CommandError: it failed.
    """
    stem = path.name.removesuffix(SUFFIX)
    entries = []
    with _lock(path.parent), contextlib.ExitStack() as files:
        # Entered first, renamed last: a manifest never names a file that is not there yet.
        manifest_file = files.enter_context(atomic_write(path))
        for number, event in enumerate(events):
            name = f"{stem}.{event.name}.afdo"
            temporary = files.enter_context(atomic_write(path.with_name(name)))
            write(number, temporary)
            flat_name = f"{stem}.{event.name}.flat.afdo"
            flat = files.enter_context(atomic_write(path.with_name(flat_name)))
            flatten_profile(event.kind, temporary, flat)
            entries.append(
                dataclasses.replace(
                    event,
                    profile=FileRecord.of(temporary, name),
                    flattened=FileRecord.of(flat, flat_name),
                )
            )
        name = f"{stem}.sources.json"
        temporary = files.enter_context(atomic_write(path.with_name(name)))
        temporary.write_text(
            json.dumps(dict(sorted(sources.items())), indent=0) + "\n", encoding="utf-8"
        )
        table = FileRecord.of(temporary, name)
        manifest = Manifest(path, program, collector, tuple(entries), rates_of(entries), table)
        manifest_file.write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def rates_of(events: Sequence[EventFile]) -> tuple[Rate, ...]:
    """The rows of `RATES` whose events are there.

    Counts of sampled events are periods times what is known of them, so that the prior has to
    weigh as much more.
    """
    known = {event.name: event for event in events}
    rates = []
    for rate in RATES:
        if rate.numerator in known and rate.denominator in known:
            numerator, denominator = known[rate.numerator], known[rate.denominator]
            overall = numerator.located / denominator.located if denominator.located else 0.0
            size = trial_size(overall, numerator.period, denominator.period)
            rates.append(dataclasses.replace(rate, prior_strength=rate.prior_strength * size))
    return tuple(rates)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps other runs from writing profiles into `folder` meanwhile; makes it if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise FileWriteError(
            f"{folder}: no file can be made in it: {error.strerror}; choose another output folder"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
