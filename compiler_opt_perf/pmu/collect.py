# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a program and a run of it to a PMU profile, in one call."""

import contextlib
import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import logging

from compiler_opt_perf.execution.files import FileWriteError, atomic_write, sha256
from compiler_opt_perf.pmu import callgrind
from compiler_opt_perf.pmu.binary import (
    PROFILING_FLAGS,
    build_id,
    hide_debug_info,
    require_debug_info,
)
from compiler_opt_perf.pmu.callgrind import CacheGeometry, Dump
from compiler_opt_perf.pmu.errors import PmuError
from compiler_opt_perf.pmu.events import EVENTS, RATES
from compiler_opt_perf.pmu.manifest import SUFFIX, Collector, EventFile, Manifest, Program
from compiler_opt_perf.pmu.sample_profile import SampleProfile, convert_to_binary
from compiler_opt_perf.pmu.symbolize import Symbols, symbolize

# Optimised code has 80 to 99% of its executed instructions located; far less is a mistake.
_LOW_SHARE = 0.5


def collect(
    binary: Path,
    arguments: Sequence[str],
    output_manifest: Path,
    *,
    geometry: CacheGeometry | None = None,
    stdin: Path | None = None,
    stdout: Path | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    expected_status: int = 0,
    text: bool = False,
) -> Manifest:
    """Runs `binary` under the simulator and writes its PMU profile.

    The profile is the manifest and one sample profile an event beside it. They appear together
    when all are complete; an interrupted or failed run leaves what was there before. The run of
    the program is of a copy without debug info, in a temporary folder, under the same file name.

    Args:
      binary: executable with debug info for profiling and a build-id.
      arguments: of the run.
      output_manifest: NAME.pmu.json; the sample profiles become NAME.<event>.afdo.
      geometry: caches to simulate; CacheGeometry() when None.
      stdin: the program's standard input; empty when None.
      stdout: where its standard output goes; discarded when None.
      cwd: the working directory it runs in.
      timeout_s: wall-clock limit of the simulated run, in seconds.
      expected_status: the exit status of a run as it should be.
      text: write sample profiles in LLVM's text format instead of the extensible binary one.

    Raises:
      PmuError: a tool is missing, the binary is not fit for profiling, or the run failed.
      CommandError: one of LLVM's tools failed.
      FileWriteError: disk full, or the output folder cannot be written.
    """
    if not output_manifest.name.endswith(SUFFIX):
        raise PmuError(f"{output_manifest}: the name of a PMU profile must end with {SUFFIX}")
    # Checked before the run, which may take long.
    _require_writable(output_manifest.parent)
    geometry = geometry or CacheGeometry()
    program = Program(binary.name, build_id(binary))
    require_debug_info(binary)
    if not os.access(binary, os.X_OK):
        raise PmuError(f"{binary}: cannot be executed; make it executable (chmod +x)")
    collector = Collector(
        backend="callgrind",
        tool=callgrind.version(),
        command=(binary.name, *arguments),
        options=callgrind.options(geometry),
        cache_geometry=geometry.as_dict(),
    )
    with _scratch() as directory:
        # Programs look at the name that they are called by.
        copy = directory / "program" / binary.name
        copy.parent.mkdir()
        hide_debug_info(binary, copy)
        logging.info("%s: running under %s", binary.name, collector.tool)
        with _stage("simulation"):
            path = callgrind.simulate(
                copy,
                arguments,
                directory,
                geometry,
                stdin=stdin,
                stdout=stdout,
                cwd=cwd,
                timeout_s=timeout_s,
                expected_status=expected_status,
            )
        with _stage(f"reading {path.stat().st_size / 1e6:.1f} MB of counts"):
            dump = callgrind.read_dump(path, copy)
        if not dump.counts:
            raise PmuError(f"{binary}: callgrind saw none of its instructions; is it a script?")
        with _stage(f"symbolising {len(dump.counts)} instructions"):
            symbols = symbolize(binary, dump.counts)
        profile = attribute(dump, symbols)
        with _stage(f"writing {len(EVENTS)} sample profiles"):
            manifest = _write(output_manifest, program, collector, dump, profile, text, directory)
    _log_figures(manifest)
    return manifest


def attribute(dump: Dump, symbols: Symbols) -> SampleProfile:
    """Attributes callgrind's counts per instruction to source locations, for all of `EVENTS`.

    Raises:
      PmuError: the dump lacks the column of an event.
    """
    for event in EVENTS:
        if event.callgrind not in dump.columns:
            raise PmuError(
                f"event {event.name}: callgrind counted {', '.join(dump.columns)}, but not "
                f"{event.callgrind}; run it with --cache-sim=yes --branch-sim=yes"
            )
    columns = [dump.columns.index(event.callgrind) for event in EVENTS]
    profile = SampleProfile(EVENTS)
    for address, counts in dump.counts.items():
        location = symbols.locations.get(address)
        if location is not None:
            present = len(counts)
            profile.add(location, [counts[i] if i < present else 0 for i in columns])
    for (caller, callee), count in dump.calls.items():
        function = symbols.entries.get(callee)
        if function is not None:
            location = symbols.locations.get(caller) if caller is not None else None
            profile.add_call(location, function, count)
    return profile


def _write(
    path: Path,
    program: Program,
    collector: Collector,
    dump: Dump,
    profile: SampleProfile,
    text: bool,
    scratch: Path,
) -> Manifest:
    """Writes manifest and sample profiles; all of them, or none."""
    stem = path.name.removesuffix(SUFFIX)
    totals = dict(zip(dump.columns, dump.totals(), strict=True))
    outside = dict(zip(dump.columns, dump.outside, strict=True))
    entries = []
    with _lock(path.parent), contextlib.ExitStack() as files:
        # Entered first, renamed last: a manifest never names a file that is not there yet.
        manifest_file = files.enter_context(atomic_write(path))
        for event, located in zip(EVENTS, profile.located, strict=True):
            file = path.with_name(f"{stem}.{event.name}.afdo")
            temporary = files.enter_context(atomic_write(file))
            if text:
                profile.write_text(event, temporary)
            else:
                profile.write_text(event, scratch / "text")
                convert_to_binary(scratch / "text", temporary)
            entries.append(
                EventFile(
                    name=event.name,
                    file=file.name,
                    unit=event.unit,
                    period=1,
                    kind=event.kind,
                    precise=True,
                    total=totals[event.callgrind],
                    located=located,
                    outside=outside[event.callgrind],
                    bytes=temporary.stat().st_size,
                    sha256=sha256(temporary),
                )
            )
        manifest = Manifest(path, program, collector, tuple(entries), RATES)
        manifest_file.write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _log_figures(manifest: Manifest) -> None:
    event = manifest.event("instructions")
    located = event.located / event.total
    logging.info(
        "%s: %d sample profiles; of %d executed instructions %.1f%% have a source location; "
        "%d more were executed in other objects, which are not profiled",
        manifest.path,
        len(manifest.events),
        event.total,
        100 * located,
        event.outside,
    )
    if located < _LOW_SHARE:
        logging.warning(
            "%s: only %.1f%% of the instructions have a source location; was all of the program "
            "compiled with %s?",
            manifest.path,
            100 * located,
            PROFILING_FLAGS,
        )


def _require_writable(folder: Path) -> None:
    """Makes `folder` if need be. Raises FileWriteError when no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileWriteError(
            f"{folder}: no file can be made in it: {error.strerror}; choose another output folder"
        ) from error


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary folder of this run alone. Raises PmuError when the disk is full."""
    try:
        with tempfile.TemporaryDirectory(prefix="pmu-profile-") as name:
            yield Path(name).resolve()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise PmuError(
            f"{tempfile.gettempdir()}: no space left on the device; free some, or let TMPDIR name "
            "a folder on another one"
        ) from error


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps other runs from writing profiles into `folder` meanwhile."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _stage(what: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    logging.info("%s: %.1f s", what, time.monotonic() - start)
