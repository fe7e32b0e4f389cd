# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the files of a PMU profile: all of them, or none."""

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

# Rates of less than this share of the program are drawn to those around them, whatever was counted.
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
    """Writes a manifest and beside it its sample profiles, flattened ones too, and its tables.

    Args:
      path: NAME.pmu.json.
      events: as they shall stand in the manifest, but for the records of their files.
      sources: where functions are, by linkage name.
      functions: of the profiled binary, whether they ran or not; None when they are not known.
      write: writes the sample profile of the event of the given number to the given path.

    Raises:
      FileWriteError: disk full, or the folder cannot be written.
      MissingToolError: llvm-profdata is not installed.
      CommandError: it failed.
    """
    stem = path.name.removesuffix(SUFFIX)
    entries = []
    profiles = []
    require_writable(path.parent)
    with exclusive(path.parent), contextlib.ExitStack() as files:
        # Entered first, renamed last: a manifest never names a file that is not there yet.
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
    """The rates of `RATES` whose events are there.

    Of what was counted one by one, the prior is a fixed share of the program: the same code has the
    same rates, however long the run was. Counts of sampled events are periods times what is known
    of them, so that where samples are few the prior has to weigh as much more.
    """
    known = {event.name: event for event in events}
    rates = []
    for row in RATES:
        if row.numerator in known and row.denominator in known:
            numerator, denominator = known[row.numerator], known[row.denominator]
            overall = numerator.located / denominator.located if denominator.located else 0.0
            # Of a mean, such as a latency, a sample is one trial.
            size = trial_size(min(overall, 1.0), numerator.period, denominator.period)
            share = row.prior_trials * size / denominator.total if denominator.total else 0.0
            rates.append(row.with_prior(max(_LEAST_PRIOR_SHARE, share)))
    return tuple(rates)


def require_writable(folder: Path) -> None:
    """Makes `folder` if need be. Raises FileWriteError when no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileWriteError(
            f"{folder}: no file can be made in it: {error.strerror}; choose another output folder"
        ) from error
