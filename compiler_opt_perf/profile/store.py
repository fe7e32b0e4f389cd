# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the files of a PMU profile, all together or none."""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler_opt_perf.binary.symbolize import DeclaredAt
from compiler_opt_perf.profile.events import RATES, Rate
from compiler_opt_perf.profile.function_table import FunctionTable
from compiler_opt_perf.profile.index import index_of, write_index
from compiler_opt_perf.profile.manifest import (
    SUFFIX,
    Collector,
    EventFile,
    FileRecord,
    Manifest,
    ProfiledBinary,
)
from compiler_opt_perf.profile.rates import trial_size
from compiler_opt_perf.profile.sample_profile import flatten_profile
from compiler_opt_perf.run.files import FileWriteError, atomic_write, exclusive

# The least prior weight of a rate, as a share of the program's total of its denominator.
_LEAST_PRIOR_SHARE = 16e-6


def save_profile(
    path: Path,
    program: ProfiledBinary,
    collector: Collector,
    events: Sequence[EventFile],
    sources: Mapping[str, DeclaredAt],
    functions: FunctionTable | None,
    write: Callable[[int, Path], None],
) -> Manifest:
    """Writes a manifest, and beside it sample profiles, flattened sample profiles and tables.

    Args:
      path: NAME.pmu.json.
      program, collector: entries of the manifest.
      events: entries of the manifest, without file records.
      sources: linkage name -> file and first line.
      functions: the functions of the profiled binary; None if unknown.
      write: writes the sample profile of the event with the given index to the given path.

    Raises:
      FileWriteError: the disk is full, or the folder cannot be written.
      MissingToolError: llvm-profdata is not installed.
      CommandError: llvm-profdata failed.
    """
    stem = path.name.removesuffix(SUFFIX)
    entries = []
    profiles = []
    require_writable(path.parent)
    with exclusive(path.parent), contextlib.ExitStack() as files:
        # The manifest is entered first and so renamed last: it never names a missing file.
        manifest_file = files.enter_context(atomic_write(path))
        for number, event in enumerate(events):
            name = f"{stem}.{event.name}.afdo"
            temporary = files.enter_context(atomic_write(path.with_name(name)))
            write(number, temporary)
            flat_name = f"{stem}.{event.name}.flat.afdo"
            flat = files.enter_context(atomic_write(path.with_name(flat_name)))
            flatten_profile(event.kind, temporary, flat)
            profiles += [temporary, flat]
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
        known = None
        content = None if functions is None else functions.to_bytes()
        if content is not None:
            name = f"{stem}.functions"
            temporary = files.enter_context(atomic_write(path.with_name(name)))
            temporary.write_bytes(content)
            known = FileRecord.of(temporary, name)
        rates = rates_of(entries)
        manifest = Manifest(path, program, collector, tuple(entries), rates, table, known)
        manifest_file.write_text(manifest.to_json(), encoding="utf-8")
        index = files.enter_context(atomic_write(index_of(path)))
        write_index(manifest_file.read_bytes(), profiles, content, index)
    return manifest


def rates_of(events: Sequence[EventFile]) -> tuple[Rate, ...]:
    """The rates of `RATES` whose two events are in `events`, with their prior weights.

    For counted events the prior weight is a fixed share of the program, so rates do not depend on
    the length of the run. Sampled events have fewer independent trials, so the prior weighs more.
    """
    known = {event.name: event for event in events}
    rates = []
    for row in RATES:
        if row.numerator in known and row.denominator in known:
            numerator, denominator = known[row.numerator], known[row.denominator]
            overall = numerator.located / denominator.located if denominator.located else 0.0
            # For a mean, such as a latency, a sample is one trial.
            size = trial_size(min(overall, 1.0), numerator.period, denominator.period)
            share = row.prior_trials * size / denominator.total if denominator.total else 0.0
            rates.append(row.with_prior(max(_LEAST_PRIOR_SHARE, share)))
    return tuple(rates)


def require_writable(folder: Path) -> None:
    """Makes `folder` if it does not exist. Raises FileWriteError: no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileWriteError(
            f"{folder}: no file can be made in it: {error.strerror}; choose another output folder"
        ) from error
