# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collects the PMU profile of a program's run."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from absl import logging

from compiler_opt_perf.binary.disassembly import split_by_execution
from compiler_opt_perf.binary.elf import (
    PROFILING_FLAGS,
    build_id,
    require_debug_info,
    require_split_debug_info,
)
from compiler_opt_perf.binary.symbolize import (
    Symbols,
    located_functions,
    require_locations,
    symbolize,
)
from compiler_opt_perf.profile.backends import BackendName, choose, read_counts
from compiler_opt_perf.profile.callgrind import CacheGeometry
from compiler_opt_perf.profile.counts import Counts
from compiler_opt_perf.profile.errors import PmuError
from compiler_opt_perf.profile.function_table import FunctionTable, control_flow_checksums
from compiler_opt_perf.profile.hot_code import add_hot_code
from compiler_opt_perf.profile.manifest import (
    SUFFIX,
    Collector,
    EventFile,
    Manifest,
    ProfiledBinary,
)
from compiler_opt_perf.profile.store import require_writable, save_profile
from compiler_opt_perf.run.progress import stage
from compiler_opt_perf.run.scratch import with_long_path
from compiler_opt_perf.run.workload import Run

# In optimised code 80 to 99% of the executed instructions have a source location. A much smaller
# share means that debug info is missing.
_LOW_SHARE = 0.5
# Of so many instructions some share a line with another basic block.
_ENOUGH_LOCATIONS = 200


def collect(
    binary: Path,
    arguments: Sequence[str],
    output_manifest: Path,
    *,
    program: Path | None = None,
    backend: BackendName = "callgrind",
    geometry: CacheGeometry | None = None,
    within: str | None = None,
    stdin: Path | None = None,
    stdout: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    expected_status: int = 0,
) -> Manifest:
    """Runs `binary` and writes the PMU profile of the run.

    The profile is a manifest with one sample profile per event beside it. The files appear together
    when all are complete; an interrupted or failed run leaves the old files. callgrind runs a copy
    without debug info, in a temporary folder, under the same file name.

    Args:
      binary: executable or shared library, with debug info for profiling and a build-id.
      arguments: the program's arguments.
      output_manifest: NAME.pmu.json; the sample profiles become NAME.<event>.afdo.
      program: the program to run; None runs the binary. A shared library needs a program.
      backend: "callgrind" simulates, "perf" counts in hardware, "auto" chooses (see `choose`).
      geometry: caches to simulate; None means CacheGeometry().
      within: linkage name; count only while this function is active. Only callgrind can.
      stdin: the program's standard input; None means empty.
      stdout: file for its standard output; None discards it.
      cwd: its working directory.
      env: variables added to this process's environment.
      timeout_s: wall-clock limit of the run, in seconds.
      expected_status: the exit status of a successful run.

    Raises:
      PmuError: a tool is missing, or the run failed.
      BinaryError: the binary is not fit for profiling.
      CommandError: one of LLVM's tools failed.
      FileWriteError: disk full, or the output folder cannot be written.
    """
    run = Run(program or binary, arguments, stdin, stdout, cwd, env, timeout_s, expected_status)
    return collect_run(
        run, binary, output_manifest, backend=backend, geometry=geometry, within=within
    )


def collect_run(
    run: Run,
    binary: Path,
    output_manifest: Path,
    *,
    backend: BackendName = "callgrind",
    geometry: CacheGeometry | None = None,
    within: str | None = None,
) -> Manifest:
    """Makes a run, and writes its profile as `collect` does."""
    profiled = _require_fit(binary, output_manifest)
    if not os.access(run.program, os.X_OK):
        raise PmuError(f"{run.program}: cannot be executed; make it executable (chmod +x)")
    chosen = choose(backend, binary, geometry or CacheGeometry(), within)
    with _scratch() as directory:
        collector = chosen.collector(run)
        logging.info("%s: running under %s; %s", run.name, collector.tool, run.started)
        counts = chosen.count(run, binary, directory)
        return _finish(output_manifest, profiled, collector, binary, counts)


def import_recording(recording: Path, binary: Path, output_manifest: Path) -> Manifest:
    """Writes the PMU profile of a perf recording, from this or another machine.

    Args:
      recording: a perf.data, or its text (docs/collect-in-hardware.md).
      binary: the program that ran, with debug info; its folder may have changed.
      output_manifest: see `collect`.

    Raises the errors of `collect`.
    """
    program = _require_fit(binary, output_manifest)
    with _scratch():
        counts = read_counts(recording, binary)
        collector = Collector(
            backend="perf",
            tool="perf",
            command=(binary.name,),
            options=(recording.name,),
            cache_geometry={},
        )
        return _finish(output_manifest, program, collector, binary, counts)


def _require_fit(binary: Path, output_manifest: Path) -> ProfiledBinary:
    """Checks binary and output folder before the run, which may take long."""
    if not output_manifest.name.endswith(SUFFIX):
        raise PmuError(f"{output_manifest}: the name of a PMU profile must end with {SUFFIX}")
    if output_manifest.is_dir():
        raise PmuError(f"{output_manifest}: is a folder; name a file")
    require_writable(output_manifest.parent)
    program = ProfiledBinary(binary.name, build_id(binary))
    require_debug_info(binary)
    require_split_debug_info(binary)
    with stage("looking at the debug info"):
        require_locations(binary)
    return program


def _finish(
    output_manifest: Path,
    program: ProfiledBinary,
    collector: Collector,
    binary: Path,
    counts: Counts,
) -> Manifest:
    """Attributes counts by instruction to source lines, and writes the profile."""
    if not counts.by_address and collector.within:
        raise PmuError(
            f"{binary}: {collector.within} was not called in this run; choose other arguments"
        )
    if not counts.by_address:
        raise PmuError(
            f"{binary}: none of its instructions was executed; did the program run another file? "
            "(A program with an RPATH loads its libraries from there.)"
        )
    with stage("looking at the executed functions"):
        functions, others = split_by_execution(binary, counts.by_address.keys())
        add_hot_code(counts, {a: size for sizes in functions for a, size in sizes.items()})
    with stage(f"symbolising {len(counts.by_address)} instructions"):
        symbols = symbolize(binary, counts.by_address)
        _warn_of_shared_lines(binary, symbols)
        # The unexecuted instructions of executed functions with debug info.
        rest = [
            address
            for sizes in functions
            if not symbols.locations.keys().isdisjoint(sizes)
            for address in sizes
            if address not in counts.by_address
        ]
        unlocated = symbols.unlocated - symbols.sources.keys()
        if counts.add_unexecuted(rest):
            symbolize(binary, rest, symbols)
        else:
            others.extend(rest)
    with stage(f"looking for functions that did not run, in {len(others)} instructions"):
        # A function whose executed instructions all lack lines must not appear as unexecuted.
        idle = located_functions(binary, others, symbols)
        named = symbols.sources.keys() | (idle - unlocated)
        table = FunctionTable.from_names(named, control_flow_checksums(binary), symbols.shared)
    with stage(f"writing {len(counts.events)} sample profiles"):
        manifest = _write(output_manifest, program, collector, counts, symbols, table)
    _log_figures(manifest, sum(counts.by_address[address][0] for address in symbols.undescribed))
    return manifest


def _write(
    path: Path,
    program: ProfiledBinary,
    collector: Collector,
    counts: Counts,
    symbols: Symbols,
    functions: FunctionTable,
) -> Manifest:
    """Attributes counts to source locations and writes the files."""
    profile = counts.attribute(symbols)
    entries = [
        EventFile(
            name=event.name,
            unit=event.unit,
            period=period,
            kind=event.kind,
            precise=precise,
            total=total,
            located=located,
            outside=outside,
        )
        for event, period, precise, total, located, outside in zip(
            counts.events,
            counts.periods,
            counts.precise,
            counts.totals(),
            profile.located,
            counts.outside,
            strict=True,
        )
    ]

    def write(number: int, output: Path) -> None:
        profile.write(counts.events[number], output)

    return save_profile(path, program, collector, entries, symbols.sources, functions, write)


def _warn_of_shared_lines(binary: Path, symbols: Symbols) -> None:
    """Tells of debug info that keeps basic blocks of one line together."""
    lines = [
        (location.line, *(site.line for site in location.call_sites))
        for location in symbols.locations.values()
    ]
    if len(lines) >= _ENOUGH_LOCATIONS and not any(
        line.discriminator for stack in lines for line in stack
    ):
        logging.warning(
            "%s: is compiled without -fdebug-info-for-profiling: statements on one line get the "
            "same counts; compile it with %s",
            binary,
            PROFILING_FLAGS,
        )


def _log_figures(manifest: Manifest, undescribed: int) -> None:
    """Logs the share of counts with a source location, and why the others have none.

    Args:
      undescribed: counts of the first event in functions without debug info.
    """
    event = manifest.events[0]
    located = event.located / event.total if event.total else 0.0
    without = undescribed / event.total if event.total else 0.0
    logging.info(
        "%s: %d sample profiles; of %d %s %.1f%% have a source location; "
        "%d more were in other objects, which are not profiled",
        manifest.path,
        len(manifest.events),
        event.total,
        event.name,
        100 * located,
        event.outside,
    )
    logging.info(
        "%s: %.1f%% of the %s are in functions without debug info, %.1f%% in instructions without "
        "a source line",
        manifest.path,
        100 * without,
        event.name,
        100 * (1 - located - without) if event.total else 0.0,
    )
    if located < _LOW_SHARE:
        logging.warning(
            "%s: only %.1f%% of the %s have a source location; was all of the program "
            "compiled with %s?",
            manifest.path,
            100 * located,
            event.name,
            PROFILING_FLAGS,
        )


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary folder for one run. Raises PmuError: the disk is full."""
    try:
        with tempfile.TemporaryDirectory(prefix="pmu-profile-") as name:
            yield with_long_path(Path(name).resolve())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise PmuError(
            f"{tempfile.gettempdir()}: no space left on the device; free some, or let TMPDIR name "
            "a folder on another one"
        ) from error
